//! The name of a Lease, as the configuration spells it.

use std::fmt;

use crate::core::spelling::kubernetes::is_dns_subdomain;
use crate::core::spelling::{Format, Text, Wrong, is_dns_label, text_value};

/// The formats of these texts.
pub const FORMATS: &[Format] = &[Format::of::<LeaseName>()];

/// A Lease: NAMESPACE/NAME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
}

impl LeaseName {
    /// Namespace of Leases whose configuration names none.
    pub const NAMESPACE: &'static str = "decklog";

    /// The one of a cluster, where the configuration names none.
    #[must_use]
    pub fn of_cluster(cluster: &str) -> Self {
        Self { namespace: Self::NAMESPACE.to_owned(), name: object_name(cluster) }
    }

    pub(super) fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// Returns its path at the API server.
    pub(in crate::app) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// A text as the name of an object: what cannot be in one is a `-`.
fn object_name(text: &str) -> String {
    let right = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let text: String = text.chars().map(right).collect();
    let labels: Vec<String> = text
        .split('.')
        .map(|label| label.trim_matches('-').chars().take(63).collect::<String>().trim_matches('-').to_owned())
        .filter(|label| !label.is_empty())
        .collect();
    let mut name = labels.join(".");
    name.truncate(253);
    let name = name.trim_end_matches(['-', '.']);
    if name.is_empty() { LeaseName::NAMESPACE.to_owned() } else { name.to_owned() }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Text for LeaseName {
    const FORMAT: &'static str = "lease";
    const EXPECTED: &'static str =
        "the Lease as NAMESPACE/NAME: lower-case letters, digits and \"-\", in the name also \".\"";

    fn read(text: &str) -> Result<Self, Wrong> {
        let right = |text: &str| {
            let (namespace, name) = text.split_once('/')?;
            (is_dns_label(namespace) && is_dns_subdomain(name))
                .then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
        };
        if let Some(lease) = right(text) {
            return Ok(lease);
        }
        let wrong = Wrong::from(format!("the string {text:?}"));
        let mended = text.trim().to_lowercase().replace('_', "-");
        let mended = if mended.contains('/') { mended } else { format!("{}/{}", Self::NAMESPACE, mended) };
        Err(if right(&mended).is_some() { wrong.near(mended) } else { wrong })
    }
}

text_value!(LeaseName);
