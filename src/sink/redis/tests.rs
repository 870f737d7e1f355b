use serde_json::json;

use super::*;
use crate::sink::tests::{item, item_of};

const EPOCH: &str = "019aa6a3d8007b3c8a5e0c1f2d3e4f50";

fn new(keys: serde_json::Value) -> Result<RedisSink, String> {
    RedisSink::new(&serde_json::from_value(keys).map_err(|error| error.to_string())?)
}

#[test]
fn ids_grow_with_the_log_over_epochs() {
    let template = "log:{resource}".parse::<Template>().unwrap();
    let of = |epoch: &str, seq| Addition::of(&template, &item_of(epoch, seq)).map(|added| (added.stream, added.id));
    let (stream, first) = of(EPOCH, 900).unwrap();
    assert_eq!((stream.as_str(), first.to_string().as_str()), ("log:deployments", "1763732346880-900"));
    // The names of epochs sort by the time they began, and a seq may be lower in a later one.
    let (_, later) = of("019aa6a3d8017b3c8a5e0c1f2d3e4f50", 17).unwrap();
    assert!(first < later && first < of(EPOCH, 901).unwrap().1);
    assert_eq!(Id::parse(&later.to_string()), Some(later));
    for none in ["", "1", "1-", "-1", "a-1", "1-1-1"] {
        assert_eq!(Id::parse(none), None, "{none}");
    }
    assert!(of("é", 1).unwrap_err().contains("epoch"));
}

#[test]
fn an_entry_is_added_with_what_identifies_it() {
    let template = "log".parse::<Template>().unwrap();
    let item = item_of(EPOCH, 7);
    let addition = Addition::of(&template, &item).unwrap();
    let words = |command: redis::Cmd| {
        let word = |arg: redis::Arg<&[u8]>| {
            let redis::Arg::Simple(bytes) = arg else { panic!("a cursor") };
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        command.args_iter().map(word).collect::<Vec<_>>()
    };
    let line = std::str::from_utf8(&item.line).unwrap();
    let id = addition.id.to_string();
    let fields = ["id", "u.7.MODIFIED", "seq", "7", "epoch", EPOCH, "type", "MODIFIED", "entry", line];
    assert_eq!(words(addition.add(None, false)), [&["XADD", "log", &id], &fields[..]].concat());
    assert_eq!(
        words(addition.add(Some(9), true)),
        [&["XADD", "log:again", "MAXLEN", "~", "9", "*"], &fields[..]].concat()
    );
}

#[test]
fn what_can_never_work_is_refused_at_once() {
    for (keys, says) in [
        (json!({"url": "redis://h", "user": "u"}), "`password_file`"),
        (json!({"url": "redis://h/a"}), "number of a database"),
        (json!({"url": "redis://h", "stream": "{x}"}), "the unknown field"),
        (json!({"url": "redis://h", "ca_file": "x"}), "rediss://"),
        (json!({"url": "redis://h", "cert_file": "x"}), "rediss://"),
    ] {
        let error = new(keys.clone()).unwrap_err();
        assert!(error.contains(says), "{keys} {error}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let mut sink = new(json!({"url": "redis://127.0.0.1:1/4?s3cret"})).unwrap();
    let texts = [
        sink.deliver(&[item(1)]).await.unwrap_err().error,
        sink.check().await.unwrap_err(),
        sink.position(&LogPosition { epoch: EPOCH.into(), seq: Seq(3), entry: None }).await.unwrap_err(),
    ];
    for error in texts {
        assert!(matches!(error, SinkError::Retry { .. }));
        let text = format!("{error} {sink:?}");
        assert!(text.contains("cannot connect to redis://127.0.0.1:1:") && !text.contains("s3cret"), "{text}");
    }
    // Where there are many streams, none says where all of them are.
    let mut sink = new(json!({"url": "redis://127.0.0.1:1/4", "stream": "{kind}"})).unwrap();
    assert_eq!(sink.position(&LogPosition { epoch: EPOCH.into(), seq: Seq(3), entry: None }).await, Ok(None));
}

/// What heals by itself is tried again, what needs an operator halts.
#[test]
fn every_refusal_of_a_server_is_of_one_sort() {
    let link = Link::new(&serde_json::from_value(json!({"url": "redis://h"})).unwrap()).unwrap();
    for (answer, halts, says) in [
        ("MOVED 3999 10.0.0.7:6381", false, "10.0.0.7:6381: the stream is on another node"),
        ("CLUSTERDOWN The cluster is down", false, "CLUSTERDOWN The cluster is down"),
        ("CROSSSLOT Keys in request don't hash to the same slot", true, "several nodes"),
        ("LOADING Redis is loading the dataset in memory", false, "LOADING"),
        ("MISCONF Errors writing to the AOF file", false, "MISCONF"),
        ("NOREPLICAS Not enough good replicas to write.", false, "Not enough good replicas to write"),
        ("MASTERDOWN Link with MASTER is down", false, "MASTERDOWN"),
        ("OOM command not allowed when used memory > 'maxmemory'.", false, "no memory left"),
        ("READONLY You can't write against a read only replica.", false, "is a replica"),
        ("NOAUTH Authentication required.", false, "credentials (Authentication required)"),
        ("NOPERM this user has no permissions to run 'xadd'", false, "+xadd"),
        ("WRONGTYPE Operation against a key", true, "something else than a stream"),
        ("ERR unknown command 'XADD'", true, "Redis 5"),
        ("ERR something new", false, "ERR something new"),
    ] {
        let Value::ServerError(error) = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap() else {
            panic!("{answer}");
        };
        let meaning = link.meaning(&error);
        assert_eq!(matches!(meaning, SinkError::Halt { .. }), halts, "{meaning}");
        assert!(meaning.to_string().contains(says) && meaning.to_string().contains("redis://h:6379"), "{meaning}");
    }
}

/// What is left of an entry that a consumer took out is its id.
#[test]
fn an_id_alone_says_as_much_as_the_cursor_confirms() {
    const LATER: &str = "019aa6a3d8017b3c8a5e0c1f2d3e4f50";
    let place = |epoch: &str, seq| LogPosition { epoch: epoch.into(), seq: Seq(seq), entry: None };
    let id = |epoch: &str, seq| Id::of(&place(epoch, seq)).unwrap();
    let mut sink = new(json!({"url": "redis://h"})).unwrap();
    let by_id = |sink: &RedisSink, last, cursor| sink.held_by_id(last, &cursor).unwrap();
    assert_eq!(by_id(&sink, id(EPOCH, 7), place(EPOCH, 9)), Some(place(EPOCH, 7)));
    assert_eq!(by_id(&sink, id(EPOCH, 7), place(LATER, 9)), None);
    // Past the cursor, or of an epoch that is to come: no journal has that one.
    for (last, cursor) in
        [(id(EPOCH, 8), place(EPOCH, 7)), (id(EPOCH, 8), place(LATER, 7)), (id(LATER, 1), place(EPOCH, 7))]
    {
        let held = by_id(&sink, last, cursor).unwrap();
        assert_eq!((Id::of(&held), held.epoch.len()), (Ok(last), EPOCH.len()));
        assert!(held.epoch.as_str() > if last.begun == id(LATER, 1).begun { LATER } else { EPOCH });
    }
    // What was sent from here, or is known.
    sink.sent = Some(id(EPOCH, 8));
    assert_eq!(by_id(&sink, id(EPOCH, 8), place(EPOCH, 7)), Some(place(EPOCH, 8)));
    let known = LogPosition::of(&item_of(EPOCH, 9).line).unwrap();
    sink.known = Some(known.clone());
    assert_eq!(by_id(&sink, id(EPOCH, 9), place(LATER, 1)), Some(known));
}
