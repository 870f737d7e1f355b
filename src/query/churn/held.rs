//! Writes that count once it is known whether they are part of a storage rewrite.

use super::{Churn, Class};
use crate::query::rewrites::{self, Known, Rewrites, Sizes, Write};

/// Number of writes that are held: memory does not depend on the length of the log. A rewrite with more is several.
const MOST: usize = 200_000;

/// A write as it is counted.
#[derive(Debug)]
pub(super) struct One {
    pub(super) seq: u64,
    pub(super) bytes: u64,
    pub(super) class: Class,
    pub(super) manager: Option<String>,
    /// Resource, namespace and name.
    pub(super) object: String,
}

/// Writes that wait.
#[derive(Debug, Default)]
pub(super) struct Held {
    sizes: Sizes,
    writes: Vec<One>,
    rewrites: Rewrites,
}

impl Held {
    pub(super) fn among(sizes: Sizes) -> Self {
        Self { writes: Vec::new(), rewrites: Rewrites::among(sizes.clone()), sizes }
    }
}

impl Churn {
    /// Holds a write that changed nothing but bookkeeping, or counts it if it is part of no storage rewrite.
    pub(super) fn hold(&mut self, one: One, write: &Write<'_>) {
        let Some(held) = &mut self.held else { return };
        if held.rewrites.take(write) == Known::Again {
            self.count(&one);
            return;
        }
        held.writes.push(one);
        if held.writes.len() >= MOST {
            self.settle();
        }
    }

    /// Counts what is held.
    pub(super) fn settle(&mut self) {
        let Some(held) = &mut self.held else { return };
        let next = Held::among(held.sizes.clone());
        let Held { writes, rewrites, .. } = std::mem::replace(held, next);
        let found = rewrites.finish();
        let seqs = rewrites::seqs(&found);
        for mut one in writes {
            if seqs.contains(&one.seq) {
                one.class = Class::StorageRewrite;
            }
            self.count(&one);
        }
        self.rewrites.extend(found);
    }
}
