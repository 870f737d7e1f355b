//! Starts a PostgreSQL.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::server::{Server, free_port};
use crate::support::until;

/// The user that decklog is, its password, and the database.
pub const PASSWORD: &str = "opensesame";

/// A server with the database `audit`, which `decklog` may use with a password and `postgres` without one. It speaks
/// TLS when it is asked to.
pub struct Postgres {
    pub dir: TempDir,
    pub server: Server,
}

/// The newest that is installed.
pub fn bin() -> PathBuf {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = installed.filter(|path| path.join("bin/initdb").exists()).max_by_key(version);
    newest.map_or_else(|| "/usr/bin".into(), |path| path.join("bin"))
}

/// A command of the server, as a user that it is willing to be.
pub fn as_server(program: &Path) -> Command {
    if !rustix::process::getuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--no-new-privs"]).arg(program);
    command
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub fn openssl(dir: &Path, arguments: &str) {
    run(Command::new("openssl").args(arguments.split(' ')).current_dir(dir));
}

impl Postgres {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        let root = rustix::process::getuid().is_root();
        if root {
            run(Command::new("chown").arg("postgres:").arg(&data));
        }
        let mut initdb = as_server(&bin().join("initdb"));
        initdb.current_dir("/").args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]);
        run(initdb.arg("-D").arg(&data));
        let access =
            "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(data.join("pg_hba.conf"), access).unwrap();
        let mut settings = fs::OpenOptions::new().append(true).open(data.join("postgresql.conf")).unwrap();
        settings.write_all(b"ssl = on\nautovacuum = off\n").unwrap();
        Self::certificates(dir.path(), &data, root);
        let port = free_port();
        let (command_data, socket) = (data.clone(), data.clone());
        let server = Server::start("postgres", dir.path(), port, move || {
            let mut command = as_server(&bin().join("postgres"));
            command.current_dir("/").arg("-D").arg(&command_data).arg("-k").arg(&socket);
            command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
            command
        })
        .await;
        let server = Self { dir, server };
        server.ready().await;
        server.sql("postgres", &format!("CREATE ROLE decklog LOGIN PASSWORD '{PASSWORD}'")).await.unwrap();
        server.sql("postgres", "CREATE DATABASE audit OWNER decklog").await.unwrap();
        fs::write(server.dir.path().join("password"), format!("{PASSWORD}\n")).unwrap();
        server
    }

    /// One authority that signs the server's certificate.
    fn certificates(dir: &Path, data: &Path, root: bool) {
        let request = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(dir, &format!("req -x509 {request} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
        openssl(dir, &format!("req {request} -keyout server.key -out server.csr -subj /CN=server"));
        fs::write(dir.join("names"), "subjectAltName = IP:127.0.0.1").unwrap();
        openssl(
            dir,
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names",
        );
        for name in ["server.key", "server.crt"] {
            let to = data.join(name);
            fs::copy(dir.join(name), &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
            if root {
                run(Command::new("chown").arg("postgres:").arg(&to));
            }
        }
    }

    /// It answers, and is not about to recover.
    pub async fn ready(&self) {
        until("the database to answer", async || self.sql("postgres", "SELECT 1").await).await;
    }

    /// What a statement of its administrator gives: the first column of each row.
    pub async fn sql(&self, database: &str, text: &str) -> Result<Vec<String>, String> {
        let text_of = |error: tokio_postgres::Error| error.as_db_error().map_or(error.to_string(), ToString::to_string);
        let at = format!("postgres://postgres@127.0.0.1:{}/{database}", self.server.port());
        let (client, connection) =
            tokio_postgres::connect(&at, tokio_postgres::NoTls).await.map_err(|error| format!("{error:?}"))?;
        let mut driver = JoinSet::new();
        driver.spawn(async { drop(connection.await) });
        let rows = client.simple_query(text).await.map_err(text_of)?;
        let first = |message| {
            let tokio_postgres::SimpleQueryMessage::Row(row) = message else { return None };
            Some(row.get(0).unwrap_or("NULL").to_owned())
        };
        Ok(rows.into_iter().filter_map(first).collect())
    }

    pub fn url(&self, port: u16) -> String {
        format!("postgres://decklog@127.0.0.1:{port}/audit")
    }
}
