//! Bodies that a template makes.

use super::*;
use crate::sink::http::Escape;

fn templated(url: &str, body: &str) -> Settings {
    Settings { body: Some(body.to_owned()), escape: Some(Escape::Slack), ..config(url, BodyFormat::Template) }
}

#[tokio::test]
async fn a_template_makes_the_body_and_the_key_of_each_entry() {
    let server = Server::start(|_, _| Does::Answers(200)).await;
    let config = templated(&server.url, r#"{"seq": {{ seq }}, "text": "{{ name }}"}"#);
    HttpSink::new(&config).unwrap().deliver(&items(1..=2)).await.unwrap();
    let config = Settings { content_type: Some("text/plain; charset=utf-8".to_owned()), ..templated(&server.url, "a") };
    HttpSink::new(&config).unwrap().deliver(&items(3..=3)).await.unwrap();
    let seen = server.seen();
    let came: Vec<_> = seen
        .iter()
        .map(|seen| {
            (seen.header("content-type"), seen.header("idempotency-key"), std::str::from_utf8(&seen.body).unwrap())
        })
        .collect();
    assert_eq!(
        came,
        [
            ("application/json", "\"e_1\"", r#"{"seq": 1, "text": "web"}"#),
            ("application/json", "\"e_2\"", r#"{"seq": 2, "text": "web"}"#),
            ("text/plain; charset=utf-8", "\"e_3\"", "a"),
        ]
    );
}

#[tokio::test]
async fn what_a_template_passes_over_counts_as_delivered() {
    let server = Server::start(|_, seen| Does::Answers(if seen.seqs() == [4] { 503 } else { 200 })).await;
    let config = templated(&server.url, "{% if seq != 2 and seq != 5 %}{\"seq\": {{ seq }}}{% endif %} ");
    let mut sink = HttpSink::new(&config).unwrap();
    let failure = sink.deliver(&items(1..=5)).await.unwrap_err();
    assert!(matches!(failure, Failure { taken: 3, error: SinkError::Retry { .. } }), "{failure}");
    sink.deliver(&items(5..=5)).await.unwrap();
    assert_eq!(server.seqs(), [[1], [3], [4]]);
}

#[tokio::test]
async fn an_entry_that_the_template_cannot_make_is_refused_with_its_line() {
    let server = Server::start(|_, _| Does::Answers(200)).await;
    // The entries that it is tried with are of seq 1.
    let config = templated(&server.url, "{\"seq\":\n{% if seq == 2 %}x{% endif %}{{ seq }}}");
    let failure = HttpSink::new(&config).unwrap().deliver(&items(1..=3)).await.unwrap_err();
    let SinkError::Refused { text } = &failure.error else { panic!("{failure}") };
    assert_eq!((failure.taken, server.seqs()), (1, vec![vec![1]]));
    assert!(text.starts_with("the template has no body for it: line 2: the body is not JSON here"), "{text}");
}

#[tokio::test]
async fn a_file_is_read_again_when_asked_and_a_wrong_one_waits() {
    let server = Server::start(|_, _| Does::Answers(200)).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("body.json");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write(r#"{"seq": {{ seq }}}"#);
    let config = Settings { body: None, body_file: Some(file.clone()), ..templated(&server.url, "") };
    let mut sink = HttpSink::new(&config).unwrap();
    write("{\n{{ seq }}}");
    sink.deliver(&items(1..=1)).await.unwrap();
    sink.reopen();
    let error = sink.deliver(&items(2..=2)).await.unwrap_err().error;
    assert!(
        matches!(&error, SinkError::Retry { text, .. } if text.starts_with("body_file: line 2: the body is not JSON")),
        "{error}"
    );
    write(r#"{"seq": 1{{ seq }}}"#);
    sink.deliver(&items(2..=2)).await.unwrap();
    assert_eq!(server.seqs(), [[1], [12]]);
    std::fs::remove_file(&file).unwrap();
    let error = HttpSink::new(&config).unwrap_err();
    assert!(error.contains("body.json") && error.contains("cannot be read"), "{error}");
}
