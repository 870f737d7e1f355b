//! Ports of loopback for the servers of the tests.

use std::fs::{self, File};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that this run of the tests has to itself, below those that the kernel gives to outgoing connections. Another
/// run beside it takes others: whoever has one holds a lock on its number as long as the process lives.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let locks = std::env::temp_dir().join(format!("decklog-test-ports-{}", rustix::process::getuid().as_raw()));
    fs::create_dir_all(&locks).unwrap();
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + std::process::id().wrapping_mul(37).wrapping_add(step) % 20_000;
        let port = u16::try_from(port).unwrap();
        let lock = File::create(locks.join(port.to_string())).unwrap();
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            // Never closed before the process ends.
            std::mem::forget(lock);
            return port;
        }
    }
}
