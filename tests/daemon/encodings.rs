//! Every way in which a text could be written somewhere: what a search for a leaked value looks for.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

/// A way of writing a text, and what it then looks like.
pub(crate) type Form = (&'static str, Vec<u8>);

/// `text` in every encoding. Where neighbours have a part in a character, it is left out.
pub(crate) fn forms(text: &str) -> Vec<Form> {
    let bytes = text.as_bytes();
    let hex = |upper: bool, before: &str| -> Vec<u8> {
        let one = |byte: &u8| if upper { format!("{before}{byte:02X}") } else { format!("{before}{byte:02x}") };
        bytes.iter().flat_map(|byte| one(byte).into_bytes()).collect()
    };
    let reversed: String = text.chars().rev().collect();
    let rot13 = |byte: &u8| match byte {
        b'a'..=b'z' => (byte - b'a' + 13) % 26 + b'a',
        b'A'..=b'Z' => (byte - b'A' + 13) % 26 + b'A',
        other => *other,
    };
    let spread = |separator: &str| {
        let parts: Vec<String> = text.chars().map(|c| c.to_string()).collect();
        parts.join(separator).into_bytes()
    };
    let mut forms = vec![
        ("as it is", bytes.to_vec()),
        ("upper case", text.to_ascii_uppercase().into_bytes()),
        ("lower case", text.to_ascii_lowercase().into_bytes()),
        ("backwards", reversed.clone().into_bytes()),
        ("hexadecimal", hex(false, "")),
        ("hexadecimal, upper case", hex(true, "")),
        ("a URL", hex(true, "%")),
        ("a URL, lower case", hex(false, "%")),
        ("escapes of JSON", hex(false, "\\u00")),
        ("escapes of C", hex(false, "\\x")),
        ("UTF-16, little end first", text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("UTF-16, big end first", text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        ("rot13", bytes.iter().map(rot13).collect()),
        ("numbers", bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",").into_bytes()),
        ("numbers with blanks", bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ").into_bytes()),
        ("characters apart", spread(" ")),
        ("lines", spread("\n")),
    ];
    for (name, backwards, source) in [("base64", "base64, backwards", text), ("base64 of it backwards", "", &reversed)]
    {
        for shift in 0..3 {
            let shifted = format!("{}{source}", "x".repeat(shift));
            let plain = inside(&BASE64_STANDARD.encode(&shifted), shift);
            let url = inside(&BASE64_URL_SAFE_NO_PAD.encode(&shifted), shift);
            if !backwards.is_empty() {
                forms.push((backwards, plain.iter().rev().copied().collect()));
                // Twice, as in the releases of Helm and in tokens inside of Secrets.
                for again in 0..3 {
                    let twice = BASE64_STANDARD.encode([&b"xx"[..again], &plain].concat());
                    forms.push(("base64 of base64", inside(&twice, again)));
                }
            }
            forms.push((name, plain));
            forms.push(("base64 for URLs", url));
        }
    }
    forms
}

/// Without the characters that the neighbours have a part in.
fn inside(coded: &str, shift: usize) -> Vec<u8> {
    let coded = coded.trim_end_matches('=');
    let from = if shift == 0 { 0 } else { 4 };
    coded.as_bytes()[from..coded.len() - 3].to_vec()
}

/// The first form of any of these texts that stands in `bytes`.
pub(crate) fn find(bytes: &[u8], needles: &[(String, Vec<Form>)]) -> Option<String> {
    needles.iter().find_map(|(text, forms)| {
        let found = forms.iter().find(|(_, form)| memchr::memmem::find(bytes, form).is_some());
        found.map(|(name, _)| format!("{text} as {name}"))
    })
}

/// What [`find`] looks for.
pub(crate) fn needles<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<(String, Vec<Form>)> {
    texts.into_iter().map(|text| (text.to_owned(), forms(text))).collect()
}
