//! `decklog completions`: what a shell can complete.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Exit, Failure, Global, Outcome};

/// Arguments of `decklog completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// The journal is asked first: for kinds, names, namespaces, types and sinks.
const BASH: &str = r#"
_decklog_journal() {
    local word found=()
    while IFS= read -r word; do
        found+=("$word")
    done < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ "${#found[@]}" -gt 0 ]; then
        COMPREPLY=("${found[@]}")
    else
        _decklog "$@"
    fi
}
complete -F _decklog_journal -o bashdefault -o default decklog
"#;

const ZSH: &str = r#"
_decklog_journal() {
    local -a found
    found=("${(@f)$(${(Q)words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ${#found} )); then
        compadd -- "${found[@]}"
    else
        _decklog "$@"
    fi
}
compdef _decklog_journal decklog
"#;

const FISH: &str = r#"
function __decklog_journal
    decklog __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c decklog -n "__fish_decklog_using_subcommand tail log get diff blame why drift churn" -f -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand tail log get diff blame why drift churn" -s n -l namespace -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand tail log drift churn" -l type -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand tail log drift churn coverage timeline" -l since -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand tail log drift churn coverage timeline" -l until -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand tail log drift churn timeline" -l touched -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand tail log diff drift churn timeline" -l by -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand get blame why" -l at -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand diff" -l from -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand diff" -l to -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand replay" -l sink -x -a "(__decklog_journal)"
complete -c decklog -n "__fish_decklog_using_subcommand sink completions schema" -f -a "(__decklog_journal)"
"#;

const ELVISH: &str = r#"
var decklog-flags = $edit:completion:arg-completer[decklog]
set edit:completion:arg-completer[decklog] = {|@words|
    var found = [(try { e:decklog __complete (drop 1 $words) 2>/dev/null | from-lines } catch e { nop })]
    if (> (count $found) 0) { put $@found } else { $decklog-flags $@words }
}
"#;

/// Prints the completions for one shell.
///
/// # Errors
/// Where standard output cannot be written.
pub fn main(args: CompletionsArgs, _global: &Global) -> Outcome {
    // Into memory first: clap_complete panics where its writer fails, such as on a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "decklog", &mut script);
    if let Some((_, journal)) = [(Shell::Bash, BASH), (Shell::Zsh, ZSH), (Shell::Fish, FISH), (Shell::Elvish, ELVISH)]
        .iter()
        .find(|(shell, _)| *shell == args.shell)
    {
        script.extend_from_slice(journal.as_bytes());
    }
    io::stdout().write_all(&script).map_err(|error| Failure::stdout(&error))?;
    Ok(Exit::Done)
}
