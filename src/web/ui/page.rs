//! The page's own files, and the page with its data in one file.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::query::render::Failure;
use crate::query::timeline::embed::Embedded;

const INDEX: &str = include_str!("../../../ui/dist/index.html");
const SCRIPT: &str = include_str!("../../../ui/dist/app.js");
const STYLE: &str = include_str!("../../../ui/dist/app.css");

/// Placeholders of the embedded files in the page.
const STYLE_LINK: &str = r#"<link rel="stylesheet" href="app.css">"#;
const SCRIPT_LINK: &str = r#"<script src="app.js" defer></script>"#;
const HEAD: &str = "<head>\n";

/// The file with this name, and what it is.
pub(super) fn file(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "" | "index.html" => Some((INDEX, "text/html; charset=utf-8")),
        "app.js" => Some((SCRIPT, "text/javascript; charset=utf-8")),
        "app.css" => Some((STYLE, "text/css; charset=utf-8")),
        _ => None,
    }
}

/// The page with the answers to its questions in it, which needs no server.
#[derive(Debug, Default)]
pub(crate) struct OneFile {
    answers: BTreeMap<String, Box<RawValue>>,
}

/// Data of the one-file form.
#[derive(Serialize)]
struct Data<'a> {
    answers: &'a BTreeMap<String, Box<RawValue>>,
    left_out: Option<&'a str>,
}

impl OneFile {
    /// Adds the answer to a question of the page.
    pub(crate) fn add(&mut self, answer: Embedded) {
        self.answers.insert(answer.question, answer.answer);
    }

    /// Returns the file.
    ///
    /// # Errors
    /// Exit 70 where the page is not what it should be.
    pub(crate) fn html(&self, left_out: Option<&str>) -> Result<String, Failure> {
        let json = serde_json::to_string(&Data { answers: &self.answers, left_out });
        whole(&json.map_err(|error| Failure::internal(format!("the file cannot be written: {error}")))?)
    }
}

/// The page with this JSON in it.
fn whole(json: &str) -> Result<String, Failure> {
    let data = format!(r#"<script type="application/json" id="decklog-data">{}</script>"#, inert(json));
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let mut page = INDEX.to_owned();
    for (place, put) in [
        (HEAD, format!("{HEAD}<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n")),
        (STYLE_LINK, format!("<style>{STYLE}</style>")),
        (SCRIPT_LINK, format!("{data}\n<script>{SCRIPT}</script>")),
    ] {
        if page.matches(place).count() != 1 {
            return Err(Failure::internal(format!("the page has no {place:?}; this is a bug")));
        }
        page = page.replacen(place, &put, 1);
    }
    Ok(page)
}

/// JSON that ends no element of a page and begins none.
fn inert(json: &str) -> String {
    // Within JSON these stand in texts alone.
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_file_form_holds_its_parts_and_nothing_of_elsewhere() {
        let page = whole(r#"{"a":"</script><script>alert(1)</script>\u2028"}"#).unwrap();
        assert!(!page.contains("alert(1)</script>") && page.contains(r"\u003c/script>\u003cscript>alert(1)"), "{page}");
        assert!(!page.contains("src=\"app.js\"") && !page.contains("href=\"app.css\""));
        assert!(page.contains(SCRIPT) && page.contains(STYLE));
        let data = page.split("id=\"decklog-data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let read: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(read["a"], "</script><script>alert(1)</script>\u{2028}");
        let policy = page.split("content=\"default-src").nth(1).unwrap().split('"').next().unwrap();
        assert!(!policy.contains("unsafe") && policy.contains("script-src 'sha256-"), "{policy}");
    }

    #[test]
    fn the_files_of_the_page_can_stand_in_it() {
        for text in [SCRIPT, STYLE] {
            let lower = text.to_lowercase();
            assert!(!lower.contains("</script") && !lower.contains("</style") && !lower.contains("<!--"));
        }
        for (name, (text, _)) in ["index.html", "app.js", "app.css"].map(|name| (name, file(name).unwrap())) {
            for found in text.match_indices("://").map(|(at, _)| &text[at.saturating_sub(5)..(at + 20).min(text.len())])
            {
                assert!(found.contains("://www.w3.org") || found.contains("://127.0"), "{name}: {found}");
            }
        }
        assert_eq!(file("../Cargo.toml"), None);
    }
}
