//! Objects that the API server cannot read from etcd, because their encryption key is lost.

use super::{Refusal, Row, Storage};

impl Storage {
    /// The key of an object is lost: whatever etcd keeps of it cannot be read.
    pub(in crate::sim) fn lose_key(&mut self, key: &str) {
        if let Some(row) = self.current(key) {
            let uid = row.uid.to_string();
            self.unreadable.insert(uid);
        }
    }

    /// The keys of all objects are back.
    pub(in crate::sim) fn give_keys_back(&mut self) {
        self.unreadable.clear();
    }

    /// Refuses to read an object, in the words of an API server without unsafe deletion.
    pub(in crate::sim) fn read(&self, row: &Row) -> Result<(), Refusal> {
        if self.unreadable.contains(&*row.uid) {
            return Err(Refusal::new(500, "InternalError", format!("Internal error occurred: {}", self.text(row))));
        }
        Ok(())
    }

    /// Refuses what the watch cache would answer, which cannot begin.
    pub(in crate::sim) fn cached(&self) -> Result<(), Refusal> {
        let Some(row) = self.view(u64::MAX, "").find(|row| self.unreadable.contains(&*row.uid)) else { return Ok(()) };
        let text = format!("storage is (re)initializing: failed to list objects: {}", self.text(row));
        Err(Refusal::new(429, "TooManyRequests", text).retry_after(1))
    }

    fn text(&self, row: &Row) -> String {
        format!("unable to transform key \"/registry/{}/{}\": no matching prefix found", self.name, row.key())
    }
}
