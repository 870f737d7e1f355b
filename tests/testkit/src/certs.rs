//! Certificates of servers, as good and as bad as a test wants them.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What `openssl ca` needs to give a certificate from any time to any other.
const AUTHORITY: &str = "[ca]\ndefault_ca = d\n[d]\nnew_certs_dir = .\ndatabase = index.txt\nrand_serial = yes\n\
                         certificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\npolicy = p\nunique_subject = no\n\
                         [p]\ncommonName = supplied\n[server]\nsubjectAltName = IP:127.0.0.1\nextendedKeyUsage = serverAuth\n";

/// Makes in `dir` an authority (`ca.pem`), another one (`stranger.pem`), a server's certificate for 127.0.0.1
/// (`server.pem`, `server.key`), and one that has expired (`expired.pem`, `expired.key`).
pub fn make(dir: &Path) {
    let openssl = |arguments: &str| {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    fs::write(dir.join("ca.cnf"), AUTHORITY).unwrap();
    fs::write(dir.join("index.txt"), "").unwrap();
    let request = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for name in ["ca", "stranger"] {
        openssl(&format!("req -x509 {request} -keyout {name}.key -out {name}.pem -days 2 -subj /CN=authority"));
    }
    for (name, until) in [("server", "20990101000000Z"), ("expired", "20210101000000Z")] {
        openssl(&format!("req {request} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(&format!(
            "ca -batch -config ca.cnf -extensions server -in {name}.csr -out {name}.pem -startdate 20200101000000Z -enddate {until} -notext"
        ));
    }
}
