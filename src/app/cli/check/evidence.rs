//! Whether evidence can be signed and written: its keys, and each of its places.

use super::Findings;
use crate::app::config::{Config, evidence};

impl Findings {
    pub(super) async fn evidence(&mut self, config: &Config) {
        let Some(settings) = &config.evidence else { return };
        if let Err(why) = settings.keys() {
            self.bad("evidence-unusable", why);
        }
        let places = match evidence::places(settings) {
            Ok(places) => places,
            Err(why) => return self.bad("evidence-unusable", why),
        };
        for mut place in places {
            match place.check().await {
                Ok(()) => self.good("evidence-ready", format!("evidence can be written to {}", place.shown())),
                Err(why) => self.bad("evidence-not-ready", why),
            }
        }
    }
}
