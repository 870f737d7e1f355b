//! PEM as Go's `encoding/pem` reads it: text around blocks is skipped, and a block that is broken takes no other with it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;

/// One block that was read.
pub(super) struct Block {
    /// The type, such as `CERTIFICATE`.
    pub(super) label: String,
    /// The headers before the content, such as `Proc-Type: 4,ENCRYPTED`; usually there are none.
    pub(super) headers: Vec<String>,
    pub(super) der: Vec<u8>,
}

/// Returns the whole blocks of a text, in their order.
pub(super) fn blocks(text: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(text);
    let mut blocks = Vec::new();
    let mut open: Option<(String, Vec<String>, String)> = None;
    for line in text.lines().map(str::trim_end) {
        if let Some(label) = marker(line, "-----BEGIN ") {
            open = Some((label.to_owned(), Vec::new(), String::new()));
        } else if let Some(label) = marker(line, "-----END ") {
            let Some((begun, headers, content)) = open.take() else { continue };
            if label == begun
                && let Ok(der) = STANDARD.decode(content)
            {
                blocks.push(Block { label: begun, headers, der });
            }
        } else if let Some((_, headers, content)) = &mut open {
            if content.is_empty() && line.contains(':') {
                headers.push(line.to_owned());
            } else {
                content.extend(line.chars().filter(|c| !c.is_ascii_whitespace()));
            }
        }
    }
    blocks
}

fn marker<'l>(line: &'l str, begin: &str) -> Option<&'l str> {
    line.strip_prefix(begin)?.strip_suffix("-----")
}

/// Returns the certificates of a text. As Go does, it skips a block with headers.
#[must_use]
pub fn certificates(text: &[u8]) -> Vec<CertificateDer<'static>> {
    let is_certificate = |block: &Block| block.label == "CERTIFICATE" && block.headers.is_empty();
    blocks(text).into_iter().filter(is_certificate).map(|block| CertificateDer::from(block.der)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_block_takes_no_other_with_it() {
        let good = |label: &str| format!("-----BEGIN {label}-----\nAQID\n-----END {label}-----\n");
        let read =
            |text: &str| blocks(text.as_bytes()).into_iter().map(|block| (block.label, block.der)).collect::<Vec<_>>();
        let one = vec![("CERTIFICATE".to_owned(), vec![1, 2, 3])];
        for before in [
            "",
            "subject=CN = x\n",
            "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\nAQID\n",
            "-----BEGIN CERTIFICATE-----\nAQID\n-----END OTHER-----\n",
            "-----END CERTIFICATE-----\n",
            "-----BEGIN \n",
            "\u{feff}\n",
        ] {
            assert_eq!(read(&format!("{before}{}", good("CERTIFICATE"))), one, "{before}");
            assert_eq!(read(&format!("{before}\n{}text", good("CERTIFICATE"))), one, "{before}");
        }
        assert_eq!(read(&good("CERTIFICATE").replace('\n', " \r\n")), one);
        assert_eq!(read(&good("CERTIFICATE").replace("AQID", "A Q\nI\tD")), one);
        assert_eq!(read(&format!("{}{}", good("A"), good("B"))).len(), 2);
        let headed = good("RSA PRIVATE KEY").replace("AQID", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\nAQID");
        let block = blocks(headed.as_bytes()).pop().unwrap();
        assert_eq!((block.headers.len(), block.der), (2, vec![1, 2, 3]));
        let headed = good("CERTIFICATE").replace("AQID", "a: b\n\nAQID");
        assert!(certificates(headed.as_bytes()).is_empty(), "as Go");
    }
}
