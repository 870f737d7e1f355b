//! Source that a command reads, and the formats that it prints.

use super::{Command, Format};

impl Command {
    /// Reports whether the command reads the journal and nothing else of this machine.
    pub(super) fn reads_the_log(&self) -> bool {
        match self {
            Self::Tail(_)
            | Self::Log(_)
            | Self::Show(_)
            | Self::Get(_)
            | Self::Diff(_)
            | Self::Blame(_)
            | Self::Why(_)
            | Self::Drift(_)
            | Self::Churn(_)
            | Self::Coverage(_)
            | Self::Timeline(_)
            | Self::Mcp(_)
            | Self::Status(_) => true,
            Self::Verify(args) => args.files.is_empty() && args.evidence.is_none(),
            Self::Run(_)
            | Self::Ui(_)
            | Self::Init(_)
            | Self::Check(_)
            | Self::Rbac(_)
            | Self::Audit(_)
            | Self::Prove(_)
            | Self::Evidence(_)
            | Self::Replay(_)
            | Self::Restore(_)
            | Self::Sink(_)
            | Self::Demo(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Schema(_)
            | Self::Version => false,
        }
    }

    /// The formats that it can print.
    pub(super) const fn formats(&self) -> &'static [Format] {
        match self {
            Self::Get(_) => &[Format::Line, Format::Wide, Format::Name, Format::Yaml, Format::Json],
            Self::Tail(_)
            | Self::Log(_)
            | Self::Show(_)
            | Self::Diff(_)
            | Self::Blame(_)
            | Self::Why(_)
            | Self::Drift(_)
            | Self::Churn(_)
            | Self::Coverage(_)
            | Self::Status(_)
            | Self::Check(_)
            | Self::Verify(_) => &[Format::Line, Format::Yaml, Format::Json],
            Self::Schema(_) => &[Format::Yaml, Format::Json],
            Self::Rbac(_) | Self::Audit(_) => &[Format::Yaml],
            Self::Run(_)
            | Self::Ui(_)
            | Self::Timeline(_)
            | Self::Mcp(_)
            | Self::Init(_)
            | Self::Prove(_)
            | Self::Evidence(_)
            | Self::Replay(_)
            | Self::Restore(_)
            | Self::Sink(_)
            | Self::Demo(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Version => &[],
        }
    }
}
