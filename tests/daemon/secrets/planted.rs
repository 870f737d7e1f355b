//! Canaries, and objects that have them wherever Kubernetes has places for a secret.

use std::io::Write;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use decklog::sim::{Sim, objects};
use serde_json::json;

use super::coded;

/// Long enough to be no accident, and without a character that an encoding would write in two ways.
pub(super) const CANARIES: [&str; 37] = [
    "canaryDATAxq7Zk2mVn4",
    "canarySTRINGDATAw8Yt5",
    "canaryAPPLIEDp3Rk9sQm",
    "canaryAPPLIEDSTRb6Xw1",
    "canaryTOKENv2Hn8cLz5t",
    "canaryCHANGEDj4Fd7gKs",
    "canaryBINARYo9Us3eAyw",
    "canaryRULEDROPn5Bq1iT",
    "canaryRULEMASKc8Mv6dP",
    "canaryJWTr2Wz6hXf0nEb",
    "canaryDOCKERx4Vb8kQs1",
    "canaryBOOTSTRAPm7Gj2p",
    "canaryHELMk9Dw3tYc5ru",
    "canaryNESTEDz6Lf8vHn2",
    "canaryLISTq1Xs4bRm7ok",
    "canaryTEXTe3Ku9gPw5xa",
    "canaryYAMLi8Nd2hCv6ty",
    "canaryENVs5Bf7jZq1lm3",
    "canaryCONDu2Wr9kXe4pd",
    "canaryHMACRULEy6Tg8nz",
    // What decklog itself is given.
    "canaryKUBETOKENc3Vh7b",
    "canaryBEARERFILEa9Qk5",
    "canaryHEADERFILEx2Pm8",
    "canaryINLINEHEADd6Rs1",
    "canaryURLPASSWORDf4Jw",
    "canaryHMACKEYw7Zb3nLt",
    // The very bytes of a private key of Ed25519.
    "canaryCLIENTKEYb4Tn8xWq2mZs6vJd1",
    // Webhooks have their secret in the path, or as a parameter.
    "canaryURLPATHr5Yd2Lq8",
    "canaryURLQUERYk3Fv9Ht",
    // What managedFields repeat.
    "canarySETn7Cw1Zp6Gx4m",
    "canaryKEYSs2Bj8Vd5Rk9",
    // Copies of a Secret in its annotations, and elsewhere.
    "canaryNOTEYAMLt6Qf3Wb",
    "canaryNOTECODEDu9Mh4X",
    "canaryNOTEGZIPv1Ks7Py",
    "canaryNOTETEXTw8Ng2Dc",
    "canaryNOTEPLAINa4Ez6T",
    "canarySECRETLISTb3Jr5",
];

fn token(value: &str) -> String {
    let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.c2ln", part(r#"{"alg":"RS256","kid":"k"}"#), part(&format!(r#"{{"sub":"{value}"}}"#)))
}

/// Values wherever Kubernetes has places for them.
pub(super) fn plant(sim: &Sim) {
    let applied = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"},
        "data": {"password": coded(CANARIES[2])}, "stringData": {"token": CANARIES[3]},
    });
    let mut planted = objects::secret("default", "planted", &[("password", CANARIES[0]), ("key", CANARIES[6])]);
    planted["stringData"] = json!({"clear": CANARIES[1]});
    planted["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": applied.to_string()});
    sim.create("secrets", planted).unwrap();
    let docker = json!({"auths": {"r.io": {"auth": coded(&format!("u:{}", CANARIES[10]))}}}).to_string();
    let helm = BASE64_STANDARD.encode(json!({"config": {"password": CANARIES[12]}}).to_string());
    for (name, kind, data) in [
        ("token", "kubernetes.io/service-account-token", vec![("token", token(CANARIES[4]))]),
        ("docker", "kubernetes.io/dockerconfigjson", vec![(".dockerconfigjson", docker)]),
        ("bootstrap", "bootstrap.kubernetes.io/token", vec![("token-secret", CANARIES[11].to_owned())]),
        ("helm", "helm.sh/release.v1", vec![("release", helm)]),
    ] {
        let data: Vec<(&str, &str)> = data.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let mut secret = objects::secret("default", name, &data);
        secret["type"] = json!(kind);
        sim.create("secrets", secret).unwrap();
    }
    let mut yaml = objects::secret("default", "yaml", &[]);
    yaml["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": format!("stringData: {{a: {}}}", CANARIES[16])});
    sim.create("secrets", yaml).unwrap();
    // Copies under names of their own, in every form that a program chose.
    let mut copied = objects::secret("default", "copied", &[]);
    let copy = |canary: &str| json!({"kind": "Secret", "stringData": {"p": canary}}).to_string();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(copy(CANARIES[33]).as_bytes()).unwrap();
    copied["metadata"]["annotations"] = json!({
        "example.com/yaml": format!("kind: Secret\nstringData:\n  p: {}\n", CANARIES[31]),
        "example.com/coded": coded(&copy(CANARIES[32])),
        "example.com/compressed": BASE64_STANDARD.encode(gzip.finish().unwrap()),
        "example.com/text": json!(copy(CANARIES[34])).to_string(),
        "example.com/plain": format!("the password is {}", CANARIES[35]),
        "kubernetes.io/service-account.name": "harmlessNAME",
    });
    sim.create("secrets", copied).unwrap();
    let list = json!({"kind": "SecretList", "items": [{"metadata": {}, "stringData": {"p": CANARIES[36]}}]});
    sim.create("configmaps", objects::config_map("default", "list", &list.to_string())).unwrap();
    // Secrets and tokens in places that are none.
    let kubeconfig = format!("users:\n- user: {{token: {}}}\n", token(CANARIES[9]));
    sim.create("configmaps", objects::config_map("default", "kubeconfig", &kubeconfig)).unwrap();
    let mut text = objects::secret("default", "x", &[("a", CANARIES[15])]);
    text["kind"] = json!("Secret");
    let text = text.to_string();
    sim.create("configmaps", objects::config_map("default", "text", &text)).unwrap();
    let mut map = objects::config_map("default", "ruled", "harmless");
    map["data"] = json!({
        "db-password": CANARIES[7], "api-key": CANARIES[8], "digested": CANARIES[19], "harmless": "harmlessVALUE",
    });
    map["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration":
            json!({"kind": "ConfigMap", "data": {"db-password": CANARIES[7], "api-key": CANARIES[8]}}).to_string()
    });
    sim.create("configmaps", map).unwrap();
    let mut pod = objects::pod("default", "tokens", "app", None, "nginx");
    pod["spec"]["containers"][0]["env"] = json!([{"name": "T", "value": token(CANARIES[17])}]);
    pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False", "message": token(CANARIES[18])}]);
    sim.create("pods", pod).unwrap();
    sim.define(objects::crd("bundles.example.com", "Bundle", true, &["v1"])).unwrap();
    let nested = |canary: &str| json!({"kind": "Secret", "apiVersion": "v1", "data": {"a": coded(canary)}});
    let bundle = json!({
        "metadata": {"name": "bundle", "namespace": "default", "managedFields": [{
            "manager": "harmlessMANAGER", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {
                "f:tokens": {(format!("v:{:?}", CANARIES[29])): {}},
                "f:keys": {(format!("k:{{\"name\":{:?}}}", CANARIES[30])): {"f:name": {}}},
            }},
        }]},
        "spec": {
            "template": nested(CANARIES[13]), "list": {"kind": "List", "items": [nested(CANARIES[14])]},
            "tokens": [CANARIES[29]], "keys": [{"name": CANARIES[30]}],
        },
    });
    sim.create("bundles.example.com", bundle).unwrap();
}
