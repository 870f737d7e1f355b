//! Stands between a sink and its server, and cuts what it is told to cut.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::shared::reach;
use crate::support::until;

#[derive(Default)]
struct Orders {
    /// Where the server is.
    to: AtomicU16,
    /// How many answers are still to be cut off.
    cut: AtomicUsize,
    /// How many answers pass before that.
    skip: AtomicUsize,
    /// How many were cut off.
    done: AtomicUsize,
    /// Connections are closed as soon as they come.
    refuse: AtomicBool,
    /// Before how many answers everything is closed; none for never.
    left: Mutex<Option<usize>>,
}

impl Orders {
    /// Counts an answer. Tells whether it is the one before which everything is closed, or comes after that.
    fn closes(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        let Some(count) = left.as_mut() else { return false };
        if *count == 0 {
            self.refuse.store(true, SeqCst);
            return true;
        }
        *count -= 1;
        false
    }
}

/// See the module. It ends with the test.
pub(crate) struct Proxy {
    port: u16,
    orders: Arc<Orders>,
    _serving: JoinSet<()>,
}

impl Proxy {
    /// A proxy for the server at this port of loopback.
    pub(crate) async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, to)
    }

    /// As [`Proxy::start`], at a port of the test's choice, where another one may just have ended.
    pub(crate) async fn at(port: u16, to: u16) -> Self {
        let listener = until("the port of a proxy", async || {
            TcpListener::bind(("127.0.0.1", port)).await.map_err(|error| error.to_string())
        });
        Self::on(listener.await, to)
    }

    fn on(listener: TcpListener, to: u16) -> Self {
        let orders = Arc::new(Orders { to: to.into(), ..Orders::default() });
        let mut serving = JoinSet::new();
        let (port, shared) = (listener.local_addr().unwrap().port(), Arc::clone(&orders));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let orders = Arc::clone(&shared);
                connections.spawn(async move {
                    if orders.refuse.load(SeqCst) {
                        return;
                    }
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", orders.to.load(SeqCst))).await {
                        pass(client, server, &orders).await;
                    }
                });
            }
        });
        Self { port, orders, _serving: serving }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Leads new connections to another server.
    pub(crate) fn lead_to(&self, port: u16) {
        self.orders.to.store(port, SeqCst);
    }

    /// Cuts the connection this many times in the place of the next answer: the server has done what it was asked to,
    /// and the client does not know.
    pub(crate) fn cut_answers(&self, count: usize) {
        self.orders.cut.store(count, SeqCst);
    }

    /// How many answers were cut off so far.
    pub(crate) fn cut(&self) -> usize {
        self.orders.done.load(SeqCst)
    }

    /// Lets so many answers pass, cuts off the next, and then refuses everything until it is told otherwise.
    pub(crate) fn close_after(&self, answers: usize) {
        *self.orders.left.lock().unwrap() = Some(answers);
    }

    /// Cuts an answer off whenever so much more was done: each time the next one, or the one after it, and so on.
    pub(crate) async fn cuts(&self, reached: &watch::Sender<u64>) {
        for round in 0_u64..12 {
            reach(reached, round * 4 + 2).await;
            let before = self.cut();
            // What comes in between are the answers to one exchange.
            self.orders.skip.store(usize::try_from(round % 5).unwrap(), SeqCst);
            self.cut_answers(1);
            until("an answer to be cut", async || if self.cut() > before { Ok(()) } else { Err("not yet".to_owned()) })
                .await;
        }
    }

    /// Closes connections as soon as they come, or no longer.
    pub(crate) fn refuse(&self, refuse: bool) {
        *self.orders.left.lock().unwrap() = None;
        self.orders.refuse.store(refuse, SeqCst);
    }
}

/// Passes bytes on in both directions until one side ends, or an answer is to be cut off. Neither direction waits for
/// the other: a client may send more before it has read.
async fn pass(client: TcpStream, server: TcpStream, orders: &Orders) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async {
        drop(tokio::io::copy(&mut from_client, &mut to_server).await);
    };
    let answers = async {
        let mut answer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut answer).await {
            let skips = orders.cut.load(SeqCst) > 0
                && orders.skip.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            if !skips && orders.cut.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                orders.done.fetch_add(1, SeqCst);
                return;
            }
            if orders.closes() {
                return;
            }
            if to_client.write_all(&answer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
    }
}
