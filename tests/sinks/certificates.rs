//! Certificates for servers on loopback, made by the openssl program.

use std::fs;
use std::path::Path;
use std::process::Command;

const CA: &str = "[ca]\ndefault_ca = d\n[d]\nnew_certs_dir = issued\ndatabase = index.txt\nrand_serial = yes\n\
certificate = ca.pem\nprivate_key = ca.key\ndefault_md = sha256\npolicy = p\nunique_subject = no\n[p]\ncommonName = supplied\n\
[names]\nsubjectAltName = IP:127.0.0.1\n";

fn openssl(dir: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes in a directory an authority (`ca.pem`), a server's certificate of it (`server.pem`, `server.key`) that is good
/// until the year, and another authority (`stranger.pem`).
pub(crate) fn make(dir: &Path, year: u16) {
    fs::create_dir_all(dir.join("issued")).unwrap();
    fs::write(dir.join("ca.cnf"), CA).unwrap();
    fs::write(dir.join("index.txt"), "").unwrap();
    let request = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for name in ["ca", "stranger"] {
        openssl(dir, &format!("req -x509 {request} -keyout {name}.key -out {name}.pem -days 2 -subj /CN={name}"));
    }
    openssl(dir, &format!("req {request} -keyout server.key -out server.csr -subj /CN=server"));
    openssl(
        dir,
        &format!(
            "ca -batch -config ca.cnf -extensions names -in server.csr -out server.pem -startdate 20200101000000Z -enddate {year}0101000000Z -notext"
        ),
    );
}
