//! Whether the readers of `authorize = "cluster"` can be reviewed.

use super::Findings;
use crate::app::config::Config;
use crate::watch::cluster::{Api, Limits};
use crate::watch::reviews::RESOURCES;

impl Findings {
    /// Checks the rights to ask who a reader is and what that may list.
    pub(super) async fn reviews(&mut self, config: &Config) {
        // Where there is no way to the cluster, that was a problem above.
        let Ok(api) = Api::open(&config.cluster, Limits::default()).await else { return };
        for (group, plural) in RESOURCES {
            match api.can_i("create", group, plural, None).await {
                Ok(true) => {}
                Ok(false) => {
                    let text = format!(
                        "{plural}.{group} may not be created, so authorize = \"cluster\" lets nobody read; `decklog rbac | kubectl apply -f -` and a binding grant it"
                    );
                    return self.bad("rights-reviews-denied", text);
                }
                Err(error) => {
                    return self.bad("rights-unknown", format!("the API server does not say what is granted: {error}"));
                }
            }
        }
        self.good("rights-reviews", "readers can be reviewed");
    }
}
