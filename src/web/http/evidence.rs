//! The directory of evidence over HTTP, for those who mirror it: digests and signed checkpoints, and nothing of an object.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Answers with a file of a directory of evidence, by its path below it.
pub(super) async fn file(dir: Option<PathBuf>, path: &str) -> Response {
    let Some(file) = dir.and_then(|dir| below(&dir, path)) else { return nothing() };
    match tokio::fs::read(&file).await {
        Ok(bytes) => {
            let is_tile = path.contains("/tile/");
            // A tile never changes; what is signed last does.
            let (kind, caching) = if is_tile {
                ("application/octet-stream", "max-age=31536000, immutable")
            } else {
                ("text/plain; charset=utf-8", "no-cache")
            };
            ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, caching)], bytes).into_response()
        }
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::NotADirectory) =>
        {
            nothing()
        }
        Err(error) => {
            tracing::warn!("cannot read the evidence {}: {error}", file.display());
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn nothing() -> Response {
    (StatusCode::NOT_FOUND, "there is no such evidence\n").into_response()
}

/// Returns the path of a file, where it is one that tlog-tiles has: no file beside the directory, and none that is hidden.
fn below(dir: &Path, path: &str) -> Option<PathBuf> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
    };
    path.split('/').all(is_name).then(|| dir.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_file_is_served() {
        let dir = Path::new("/e");
        for good in ["01-1/checkpoint", "01-1/before", "01-1/tile/0/x001/234.p/17", "01-1/tile/entries/000"] {
            assert_eq!(below(dir, good), Some(dir.join(good)));
        }
        for bad in [
            "",
            "..",
            "../journal.db",
            "01-1/../../key",
            "/etc/passwd",
            "01-1//checkpoint",
            "01-1/.checkpoint.new",
            "a\\b",
            "a\0b",
            "%2e%2e/key",
        ] {
            assert_eq!(below(dir, bad), None, "{bad:?}");
        }
    }
}
