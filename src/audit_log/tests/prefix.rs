//! Events that were cut off anywhere.

use serde_json::Value;

use super::{AuditedRequest, Outcome, TIME, outcomes, read, recorded, told};

/// Fields that stand before `responseStatus` ends are those of the whole event. Each field behind it is that of the whole, or empty.
fn compare(whole: &AuditedRequest, cut: &AuditedRequest, at: usize) {
    assert!(cut.cut, "at {at}");
    let known = |request: &AuditedRequest| AuditedRequest {
        uid: String::new(),
        before: String::new(),
        after: String::new(),
        name: String::new(),
        dry_run: false,
        may_be_dry: false,
        received: 0,
        completed: 0,
        cut: false,
        ..request.clone()
    };
    assert_eq!(known(whole), known(cut), "at {at}");
    let texts = |r: &AuditedRequest| [r.uid.clone(), r.before.clone(), r.after.clone(), r.name.clone()];
    for (whole, cut) in texts(whole).iter().zip(&texts(cut)) {
        assert!(cut.is_empty() || cut == whole, "{cut} for {whole} at {at}");
    }
    assert!([0, whole.received].contains(&cut.received) && [TIME, whole.completed].contains(&cut.completed), "at {at}");
    assert!(whole.dry_run || !cut.dry_run, "at {at}");
    assert!(cut.dry_run == whole.dry_run || cut.may_be_dry, "at {at}");
    assert!(cut.may_be_dry || !whole.may_be_dry, "at {at}");
}

/// Cuts an event at every byte, and returns from where on it is accepted.
fn cut_everywhere(line: &str, mark: &str) -> Option<usize> {
    let whole = outcomes(read(line.as_bytes(), Some(TIME))).remove(0);
    let mut accepted = None;
    for at in 1..line.len() {
        let mut text = line.as_bytes()[..at].to_vec();
        text.extend_from_slice(mark.as_bytes());
        let mut found = outcomes(read(&text, Some(TIME)));
        assert_eq!(found.len(), 1, "at {at}: {found:?}");
        match (&whole, found.remove(0)) {
            (_, Outcome::Unreadable(_)) => assert_eq!(accepted, None, "at {at} it is not read any more"),
            (Outcome::Request(whole), Outcome::Request(cut)) => {
                compare(whole, &cut, at);
                accepted = accepted.or(Some(at));
            }
            (whole, cut) => {
                assert_eq!(*whole, cut, "at {at}");
                accepted = accepted.or(Some(at));
            }
        }
    }
    accepted
}

#[test]
fn a_cut_changes_nothing_that_stands_before_it() {
    for line in recorded() {
        for mark in ["", "[Truncated...]"] {
            let accepted = cut_everywhere(line, mark);
            // What ends responseStatus is what decides, or a stage that is no end.
            let behind: &[&str] = match line.contains(r#""stage":"RequestReceived""#) {
                true => &[r#","requestURI""#],
                false => &[r#","requestObject""#, r#","responseObject""#, r#","requestReceivedTimestamp""#],
            };
            let end = behind.iter().find_map(|member| line.find(member));
            assert_eq!(accepted, end, "{line}");
        }
    }
}

/// A cut event of another order might lack who was impersonated.
#[test]
fn what_is_sorted_is_not_read_where_it_is_cut() {
    for line in recorded() {
        let sorted = serde_json::from_str::<Value>(line).unwrap().to_string();
        assert_eq!(cut_everywhere(&sorted, ""), None, "{sorted}");
    }
}

#[test]
fn an_answer_that_was_cut_names_what_is_whole_of_its_head() {
    let line = recorded().into_iter().find(|line| line.contains("kubectl-label")).unwrap();
    let at = |text: &str| line.find(text).unwrap();
    let read = |end: usize| match outcomes(read(&line.as_bytes()[..end], Some(TIME))).remove(0) {
        Outcome::Request(request) => *request,
        other @ (Outcome::Other(_) | Outcome::Unreadable(_)) => panic!("{}", told(&other)),
    };
    let answer = at(r#""responseObject""#);
    let behind = |text: &str, length: usize| answer + line[answer..].find(text).unwrap() + length;
    for (end, uid, after) in [
        (behind(r#""uid":"#, 5), "", ""),
        (behind(r#","resourceVersion""#, 0), "whole", ""),
        (behind(r#""209""#, 4), "whole", ""),
        (behind(r#""209""#, 6), "whole", "209"),
        (behind(r#""managedFields""#, 0), "whole", "209"),
    ] {
        let cut = read(end);
        let whole = if cut.uid.is_empty() { "" } else { "whole" };
        assert_eq!(
            (whole, cut.after.as_str(), cut.received, cut.completed),
            (uid, after, 0, TIME),
            "{}",
            &line[answer..end]
        );
    }
    let asked = read(at(r#""requestObject""#) + 40);
    assert_eq!(
        (asked.uid.as_str(), asked.after.as_str()),
        ("", ""),
        "what was asked for says nothing of what was written"
    );
    let body = read(at(r#","requestReceivedTimestamp""#));
    assert_eq!((body.uid.is_empty(), body.after.as_str(), body.received, body.completed), (false, "209", 0, TIME));
    let late = read(at(r#","annotations""#));
    assert!(late.received > 0 && late.completed > late.received && late.cut);
}

#[test]
fn a_number_that_may_go_on_is_not_whole() {
    let begin = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7a","stage":"ResponseComplete","requestURI":"/x","verb":"update","user":{"username":"alice"},"objectRef":{"resource":"pods","name":"p"},"responseStatus":"#;
    let table = [
        (r#"{"code":20"#, "an audit event breaks off before the end of its responseStatus"),
        (r#"{"code":200"#, "an audit event breaks off before the end of its responseStatus"),
        (r#"{"code":200}"#, "update pods/p alice@ 200"),
        (r#"{"code":200},"req"#, "update pods/p alice@ 200"),
        (r#"{"status":"Failure"}"#, "an audit event breaks off before the end of its responseStatus"),
        (r#"{"code":200},"verb":"x","#, "a record breaks off, and its members are not in the order of the API server"),
        (r#"{"code":200},"ofAnotherVersion":1,"requestObject":{"#, "update pods/p alice@ 200"),
    ];
    for (end, expected) in table {
        let text = format!("{begin}{end}");
        assert_eq!(told(&outcomes(read(text.as_bytes(), None)).remove(0)), expected, "{end}");
    }
}
