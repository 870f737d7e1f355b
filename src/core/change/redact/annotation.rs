//! Redaction of the annotations of a Secret. Copies of a Secret stand there under any name, as YAML, in base64, compressed, as
//! a single value, or as a digest that can be guessed. So unknown annotations are redacted.

// kubectl's copy of the object is JSON: its values are redacted one by one.
use crate::core::k8s::bookkeeping::LAST_APPLIED;

/// Annotations that by the documents of those who write them hold names, numbers or words of theirs, and nothing of
/// what the Secret holds. Those of cert-manager repeat what its certificate says to everybody.
const HARMLESS: [&str; 27] = [
    "argocd.argoproj.io/compare-options",
    "argocd.argoproj.io/hook",
    "argocd.argoproj.io/hook-delete-policy",
    "argocd.argoproj.io/sync-options",
    "argocd.argoproj.io/sync-wave",
    "argocd.argoproj.io/tracking-id",
    "cert-manager.io/alt-names",
    "cert-manager.io/certificate-name",
    "cert-manager.io/common-name",
    "cert-manager.io/ip-sans",
    "cert-manager.io/issuer-group",
    "cert-manager.io/issuer-kind",
    "cert-manager.io/issuer-name",
    "cert-manager.io/uri-sans",
    "helm.sh/hook",
    "helm.sh/hook-delete-policy",
    "helm.sh/hook-weight",
    "helm.sh/resource-policy",
    "kubernetes.io/service-account.name",
    "kubernetes.io/service-account.uid",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
    "reflector.v1.k8s.emberstack.com/auto-reflects",
    "reflector.v1.k8s.emberstack.com/reflects",
    "replicator.v1.mittwald.de/replicate-from",
    "replicator.v1.mittwald.de/replicated-at",
    "replicator.v1.mittwald.de/replicated-from-version",
];

/// The longest part of a name: a label of DNS.
const LABEL: usize = 63;

/// Members of a Secret beside its values.
pub(super) const KNOWN_MEMBERS: [&str; 7] =
    ["apiVersion", "kind", "metadata", "type", "immutable", "data", "stringData"];

/// Reports whether an annotation of a Secret may be examined by itself, or is redacted as a whole. `text` is none if it is no
/// text.
pub(super) fn may_stay(name: &str, text: Option<&str>) -> bool {
    let Some(text) = text else { return false };
    // Yes and no are nobody's secret.
    matches!(text, "" | "true" | "false") || name == LAST_APPLIED || (HARMLESS.contains(&name) && is_names(text))
}

/// Reports whether a text has the form of DNS names and their separators: no copy of an object has it.
fn is_names(text: &str) -> bool {
    let joins = |byte: &u8| b"-._:/,*@= ".contains(byte);
    text.as_bytes().split(joins).all(|part| part.len() <= LABEL && part.iter().all(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_be_harmless_stays() {
        let stays = |name: &str, text: &str| may_stay(name, Some(text));
        assert!(stays("kubernetes.io/service-account.name", "default"));
        assert!(stays("cert-manager.io/alt-names", "*.shop.example,shop.example"));
        assert!(stays("cert-manager.io/uri-sans", "spiffe://cluster.local/ns/shop/sa/web"));
        assert!(stays("argocd.argoproj.io/sync-options", "Prune=false,Replace=true"));
        assert!(stays("anybody.example/at-all", "true") && stays("anybody.example/at-all", ""));
        assert!(!stays("anybody.example/at-all", "default") && !stays("Kubernetes.io/service-account.name", "default"));
        assert!(!may_stay("cert-manager.io/common-name", None));
        for text in ["a: b\nc: d", "{\"kind\":\"Secret\"}", &"A".repeat(64), "a+b", "\u{e9}"] {
            assert!(!stays("cert-manager.io/common-name", text), "{text}");
        }
    }
}
