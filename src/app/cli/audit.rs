//! `decklog audit`: the API server's side of the audit log.

mod policy;
mod setup;

use clap::{Args, Subcommand};

use super::output::Out;
use super::{Exit, Failure, Global, Outcome, complain, init, rbac};
pub use policy::PolicyArgs;
pub use setup::SetupArgs;

/// Arguments of `decklog audit`.
#[derive(Args, Debug)]
pub struct AuditArgs {
    /// What to print
    #[command(subcommand)]
    pub command: AuditCommand,
}

/// What can be printed.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Print the smallest audit policy that names who changes what this configuration watches
    Policy(PolicyArgs),
    /// Print the flags of kube-apiserver, and the kubeconfig of its webhook, for each `[[audit_log]]`
    Setup(SetupArgs),
}

/// Prints a policy or flags.
///
/// # Errors
/// Where the configuration is wrong, or a name can only be looked up in the cluster, and the cluster does not answer.
pub fn main(args: AuditArgs, global: &Global) -> Outcome {
    let text = match args.command {
        AuditCommand::Policy(args) => {
            let loaded = init::wanted(global)?;
            let (discovered, _) = super::block_on(rbac::discover(&loaded.config))?;
            let (text, unknown) = policy::policy(&loaded.config.watch, &discovered, args.level);
            if !unknown.is_empty() {
                complain(&format!(
                    "the cluster does not serve {} now, or does not say so; the policy has it as the configuration spells it, which has to be PLURAL.GROUP",
                    unknown.into_iter().collect::<Vec<_>>().join(", ")
                ));
            }
            text
        }
        AuditCommand::Setup(args) => {
            // Whoever sets up the API server need not be able to read what the daemon reads.
            let logs = if global.has_config() { global.load_for_reading()?.config.audit_log } else { Vec::new() };
            let text = setup::setup(&logs, &args).map_err(Failure::usage)?;
            setup::unused_host(&logs, &args).iter().for_each(|unused| complain(unused));
            text
        }
    };
    let mut out = Out::new(global);
    out.bytes(text.as_bytes())?;
    out.flush()?;
    Ok(Exit::Done)
}
