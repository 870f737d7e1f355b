//! Starts a broker of Kafka.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::server::{Server, free_port, made};

/// A broker that is reached in several ways.
pub struct Kafka {
    pub server: Server,
    pub dir: TempDir,
    /// Where consumers read.
    pub direct: u16,
    /// Where the proxy reaches it, and where it tells those that come from there to go.
    pub proxied: u16,
    pub told: u16,
    /// Whether sinks write in transactions.
    pub transactional: bool,
}

impl Kafka {
    pub async fn start(transactional: bool) -> Self {
        Self::start_with(transactional, |_, _| String::new(), &[]).await
    }

    /// One that lets nobody do anything but as `writer`, with the password in the file that is given beside the port.
    pub async fn with_rights() -> (Self, u16, PathBuf) {
        let plain = free_port();
        let kafka = Self::start_with(
            true,
            |_, listeners| {
                listeners.push(("PLAIN", plain, "SASL_PLAINTEXT"));
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\nsuper.users=User:ANONYMOUS\n\
                 sasl.enabled.mechanisms=PLAIN\nlistener.name.plain.plain.sasl.jaas.config=\
                 org.apache.kafka.common.security.plain.PlainLoginModule required user_writer=\"right\";\n"
                    .to_owned()
            },
            &[],
        )
        .await;
        let password = kafka.dir.path().join("password");
        fs::write(&password, "right\n").unwrap();
        (kafka, plain, password)
    }

    /// `more` gives further listeners and settings of a broker in this directory, `format` what its storage begins with.
    pub async fn start_with(
        transactional: bool,
        more: impl FnOnce(&Path, &mut Vec<(&'static str, u16, &'static str)>) -> String,
        format: &'static [&'static str],
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (direct, proxied, told, controller) = (free_port(), free_port(), free_port(), free_port());
        let mut others = Vec::new();
        let more = more(dir.path(), &mut others);
        let mut listeners = format!("DIRECT://127.0.0.1:{direct},PROXIED://127.0.0.1:{proxied}");
        let mut advertised = format!("DIRECT://127.0.0.1:{direct},PROXIED://127.0.0.1:{told}");
        let mut protocols = "CONTROLLER:PLAINTEXT,DIRECT:PLAINTEXT,PROXIED:PLAINTEXT".to_owned();
        for (name, port, protocol) in others {
            for list in [&mut listeners, &mut advertised] {
                *list += &format!(",{name}://127.0.0.1:{port}");
            }
            protocols += &format!(",{name}:{protocol}");
        }
        let data = dir.path().join("data");
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\nlisteners={listeners},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners={advertised}\nlistener.security.protocol.map={protocols}\n\
             inter.broker.listener.name=DIRECT\ncontroller.listener.names=CONTROLLER\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\nlog.dirs={}\nauto.create.topics.enable=false\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=1\nshare.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\nbroker.session.timeout.ms=1500\nbroker.heartbeat.interval.ms=300\n\
             controller.quorum.election.timeout.ms=300\ncontroller.quorum.fetch.timeout.ms=600\n{more}",
            data.display(),
        );
        fs::write(dir.path().join("server.properties"), text).unwrap();
        let (program, root) = (made("kafka").join("kafka"), dir.path().to_owned());
        let server = Server::start("kafka", dir.path(), direct, move || {
            let mut command = Command::new(&program);
            command.arg(&root).args(format);
            command
        })
        .await;
        Self { server, dir, direct, proxied, told, transactional }
    }
}
