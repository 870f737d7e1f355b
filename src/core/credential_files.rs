//! Files with credentials and certificates, which somebody else replaces while decklog runs.

use std::path::{Path, PathBuf};

/// Error for a file that cannot be read, or holds no text. It names the file and nothing in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FileError(String);

/// A file that is read again before each use. While it cannot be read, because it is being replaced, what was read last
/// serves.
#[derive(Clone)]
pub(crate) struct Followed {
    path: PathBuf,
    content: Option<Vec<u8>>,
    /// It could not be read the last time, and that was logged.
    is_missed: bool,
}

impl std::fmt::Debug for Followed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Followed").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Followed {
    /// Creates a follower that has read nothing yet.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), content: None, is_missed: false }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it. Returns whether it is another content than before.
    pub(crate) async fn refresh(&mut self) -> Result<bool, FileError> {
        match tokio::fs::read(&self.path).await {
            Ok(content) => {
                let other = self.content.as_deref() != Some(&content[..]);
                self.content = Some(content);
                self.is_missed = false;
                Ok(other)
            }
            Err(error) => {
                let text = format!("cannot read {}: {error}", self.path.display());
                if self.content.is_none() {
                    return Err(FileError(text));
                }
                if !std::mem::replace(&mut self.is_missed, true) {
                    tracing::warn!("{text}; decklog uses what it read last until it can be");
                }
                Ok(false)
            }
        }
    }

    /// Returns the bytes that were read last; none before the first [`Followed::refresh`].
    pub(crate) fn bytes(&self) -> &[u8] {
        self.content.as_deref().unwrap_or_default()
    }

    /// Returns the bytes that were read last as a text, without surrounding space.
    pub(crate) fn text(&self) -> Result<&str, FileError> {
        let text = std::str::from_utf8(self.bytes());
        text.map(str::trim).map_err(|_| FileError(format!("{} holds no text", self.path.display())))
    }

    /// It must be readable at the next use.
    pub(crate) fn forget(&mut self) {
        self.content = None;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What is logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// It is looked at before each batch: a line for each would fill the log.
    #[tokio::test]
    async fn a_file_that_is_missing_is_logged_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, lines) = (dir.path().join("token"), Lines::default());
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let mut file = Followed::new(&path);
        for logged in 1..=2 {
            fs::write(&path, "x").unwrap();
            file.refresh().await.unwrap();
            fs::remove_file(&path).unwrap();
            for _ in 0..5 {
                file.refresh().await.unwrap();
            }
            assert_eq!(String::from_utf8_lossy(&lines.0.lock().unwrap()).lines().count(), logged);
        }
    }

    #[tokio::test]
    async fn what_was_read_last_serves_while_a_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let mut file = Followed::new(&path);
        let error = file.refresh().await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {}", path.display())), "{error}");
        fs::write(&path, " first\n").unwrap();
        assert!(file.refresh().await.unwrap());
        assert!(!file.refresh().await.unwrap());
        assert_eq!(file.text(), Ok("first"));
        fs::remove_file(&path).unwrap();
        assert!(!file.refresh().await.unwrap());
        assert_eq!(file.text(), Ok("first"));
        fs::write(&path, "second").unwrap();
        assert!(file.refresh().await.unwrap());
        assert_eq!(file.text(), Ok("second"));
        file.forget();
        fs::write(&path, [0xff]).unwrap();
        file.refresh().await.unwrap();
        assert!(file.text().unwrap_err().to_string().ends_with("holds no text"));
    }
}
