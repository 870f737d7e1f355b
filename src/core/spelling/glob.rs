//! Patterns of one word.

/// Reports whether a text fits a pattern, in which `*` stands for any run of bytes; `same` decides whether another byte of the
/// pattern stands for one of the text. The classic walk with one way back: at most one step per pair of bytes.
pub fn fits(pattern: &str, text: &str, same: impl Fn(u8, u8) -> bool) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(&wanted) if same(wanted, text[t]) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_run_and_the_rest_for_what_is_the_same() {
        let same = |wanted, byte| wanted == b'?' || wanted == byte;
        for (pattern, fit, unfit) in [
            ("ci-*", &["ci-", "ci-1", "ci-a-b"][..], &["ci", "xci-1", ""][..]),
            ("*-test", &["a-test", "-test", "a-test-test"], &["a-tests", "test"]),
            ("a?c*", &["abc", "axcdd"], &["ac", "abd", "aabc"]),
            ("*a*b*", &["ab", "xaxbx", "bab"], &["ba", "a", "b"]),
            ("pay", &["pay"], &["pay2", "pa", "Pay"]),
        ] {
            assert!(fit.iter().all(|text| fits(pattern, text, same)), "{pattern}: {fit:?}");
            assert!(!unfit.iter().any(|text| fits(pattern, text, same)), "{pattern}: {unfit:?}");
        }
    }
}
