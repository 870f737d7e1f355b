//! `decklog prove`: the proof of one entry, which is checked without decklog's journal.

use clap::Args;

use super::output::Out;
use super::{Exit, Failure, Global, Outcome};
use crate::core::model::Seq;
use crate::evidence::checkpoint::Checkpoint;
use crate::evidence::note::Note;
use crate::evidence::place::Directory;
use crate::evidence::proof::Proof;
use crate::evidence::tree::Tree;
use crate::journal::{Reader, TreeRow};

/// Arguments of `decklog prove`.
#[derive(Args, Debug)]
pub struct ProveArgs {
    /// The entry, by its seq
    #[arg(long, value_name = "SEQ")]
    pub seq: u64,
}

/// Prints the proof.
///
/// # Errors
/// Exit 1 where no signed checkpoint covers the entry.
pub fn main(args: ProveArgs, global: &Global) -> Outcome {
    let (mut reader, _) = global.reader()?;
    let proof = prove(&mut reader, Seq(args.seq), directories(global))?;
    let mut out = Out::new(global);
    out.bytes(proof.render().as_bytes())?;
    out.flush()?;
    Ok(Exit::Done)
}

/// Returns the directory of evidence that the configuration names, if it names one.
pub(super) fn directories(global: &Global) -> Vec<Directory> {
    let loaded = global.load_for_reading().ok();
    let dir = loaded.and_then(|loaded| loaded.config.evidence).and_then(|evidence| evidence.dir);
    dir.map(Directory::new).into_iter().collect()
}

fn prove(reader: &mut Reader, seq: Seq, directories: Vec<Directory>) -> Result<Proof, Failure> {
    let trees = reader.trees()?;
    let no = |why: String| Failure::new(Exit::No, why);
    if trees.is_empty() {
        return Err(no(
            "nothing of this journal is signed: [evidence] in the configuration switches that on".to_owned()
        ));
    }
    let Some(row) = trees.into_iter().rev().find(|row| row.first <= seq && seq <= row.last) else {
        return Err(no(format!(
            "entry {seq} is in no tree: there is no such entry, or evidence was off when it was logged"
        )));
    };
    let (note, checkpoint) = signed(&row)?
        .filter(|(_, checkpoint)| checkpoint.last().is_some_and(|last| seq.0 <= last))
        .ok_or_else(|| no(format!("no checkpoint covers entry {seq} yet: decklog signs one a minute while it runs")))?;
    let index = checkpoint.origin.index(seq.0).unwrap_or(0);
    let size = checkpoint.size;
    let mut tree = Tree::read(reader, row, directories)?;
    if tree.root(reader, size)? != checkpoint.root {
        return Err(Failure::internal("the tree of the journal is not the one that was signed; run `decklog verify`"));
    }
    Ok(Proof { index, hashes: tree.prove(reader, index, size)?, note })
}

/// Returns the last checkpoint of a tree.
fn signed(row: &TreeRow) -> Result<Option<(String, Checkpoint)>, Failure> {
    let Some(text) = row.note.clone() else { return Ok(None) };
    let read = Note::parse(text.as_bytes()).and_then(|note| Checkpoint::parse(&note.text));
    let checkpoint = read.map_err(|why| Failure::internal(format!("the checkpoint in the journal: {why}")))?;
    Ok(Some((text, checkpoint)))
}
