//! A bucket that answers by a script, and what is delivered to it.

use super::*;

/// What came to a bucket.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) key: String,
    pub(super) headers: hyper::HeaderMap,
    pub(super) size: usize,
}

/// A server with one bucket, `logs`.
pub(super) struct Bucket {
    pub(super) endpoint: String,
    pub(super) objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    pub(super) seen: Arc<Mutex<Vec<Seen>>>,
    _tasks: JoinSet<()>,
}

impl Bucket {
    /// It is as it should be where `answer` gives no status and no code of its own.
    pub(super) async fn start(answer: impl Fn(&Seen) -> Option<(u16, &'static str)> + Send + Sync + 'static) -> Self {
        Self::start_with(answer, true).await
    }

    /// As [`Bucket::start`], and whether it gives objects an ETag.
    async fn start_with(
        answer: impl Fn(&Seen) -> Option<(u16, &'static str)> + Send + Sync + 'static,
        tags: bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let objects: Arc<Mutex<BTreeMap<String, Bytes>>> = Arc::default();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (answer, shared, all) = (Arc::new(answer), Arc::clone(&objects), Arc::clone(&seen));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, objects, all) = (Arc::clone(&answer), Arc::clone(&shared), Arc::clone(&all));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, objects, all) = (Arc::clone(&answer), Arc::clone(&objects), Arc::clone(&all));
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let key = head.uri.path().trim_start_matches("/logs").trim_start_matches('/').to_owned();
                        let seen = Seen { method: head.method, key, headers: head.headers, size: body.len() };
                        all.lock().unwrap().push(seen.clone());
                        let (status, text) = match answer(&seen) {
                            Some((status, "")) => (status, "<html>".into()),
                            Some((status, code)) => (status, format!("<Error><Code>{code}</Code></Error>").into()),
                            None => Self::does(&mut objects.lock().unwrap(), &seen, body),
                        };
                        let response = Response::builder().status(status);
                        let response = if tags { response.header("etag", "\"x\"") } else { response };
                        Ok::<_, hyper::Error>(response.body(Full::new(text)).unwrap())
                    }
                });
                connections.spawn(async move {
                    let connection = hyper::server::conn::http1::Builder::new();
                    connection.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        Self { endpoint, objects, seen, _tasks: tasks }
    }

    fn does(objects: &mut BTreeMap<String, Bytes>, seen: &Seen, body: Bytes) -> (u16, Bytes) {
        let there = objects.contains_key(&seen.key);
        match seen.method {
            Method::PUT if there && seen.headers.contains_key("if-none-match") => (412, Bytes::new()),
            Method::PUT if seen.headers.contains_key("if-match") => (404, Bytes::new()),
            Method::PUT => {
                objects.insert(seen.key.clone(), body);
                (200, Bytes::new())
            }
            Method::POST => {
                let text = String::from_utf8_lossy(&body).into_owned();
                for part in text.split("<Key>").skip(1) {
                    objects.remove(part.split('<').next().unwrap());
                }
                (200, "<DeleteResult></DeleteResult>".into())
            }
            _ if seen.key.is_empty() => {
                let row = |key: &String| {
                    format!(
                        "<Contents><Key>{key}</Key><Size>1</Size><LastModified>2026-11-21T10:15:00.000Z</LastModified><ETag>x</ETag></Contents>"
                    )
                };
                let rows: String = objects.keys().map(row).collect();
                (200, format!("<ListBucketResult>{rows}<IsTruncated>false</IsTruncated></ListBucketResult>").into())
            }
            _ => objects
                .get(&seen.key)
                .map_or((404, "<Error><Code>NoSuchKey</Code></Error>".into()), |body| (200, body.clone())),
        }
    }

    pub(super) fn sink(&self, dir: &Path) -> S3Sink {
        let credentials = dir.join("aws");
        if !credentials.exists() {
            let text = "aws_access_key_id = AK\naws_secret_access_key = geheim\naws_session_token = first\n";
            fs::write(&credentials, text).unwrap();
        }
        S3Sink::new(&config("s3://logs", json!({"endpoint": self.endpoint, "credentials_file": credentials}))).unwrap()
    }

    /// How long the objects are that were asked to be written.
    fn sizes(&self) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|seen| seen.method == Method::PUT && seen.key.ends_with(".zst"))
            .map(|seen| seen.size)
            .collect()
    }
}

#[tokio::test]
async fn a_server_that_keeps_no_conditions_is_not_delivered_to() {
    let dir = tempfile::tempdir().unwrap();
    // It does not look at them, and writes over what is there.
    let bucket = Bucket::start(|seen| {
        let asks = ["if-none-match", "if-match"].iter().any(|name| seen.headers.contains_key(*name));
        asks.then_some((200, ""))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    sink.check().await.unwrap();
    assert_eq!(bucket.seen.lock().unwrap().last().unwrap().method, Method::POST, "nothing stays of a check");
    let failure = sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 1, error: SinkError::Halt { .. } }), "{failure}");
    assert!(failure.to_string().contains("does not keep conditional writes (If-None-Match)"), "{failure}");
    // It does not know them.
    let bucket =
        Bucket::start(|seen| seen.headers.contains_key("if-none-match").then_some((501, "NotImplemented"))).await;
    let failure = bucket.sink(dir.path()).deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Halt { .. } }), "{failure}");
    assert!(failure.to_string().contains("does not keep conditional writes"), "{failure}");
    // It knows them.
    let bucket = Bucket::start(|_| None).await;
    let mut sink = bucket.sink(dir.path());
    sink.check().await.unwrap();
    for seq in 1..=3 {
        sink.deliver(&[item(seq)]).await.unwrap();
    }
    let conditions =
        bucket.seen.lock().unwrap().iter().filter(|seen| seen.headers.contains_key("if-none-match")).count();
    assert_eq!(conditions, 7, "two for each segment, and one to see whether it is kept");
    assert_eq!(bucket.objects.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn an_object_that_is_too_large_is_halved_and_one_entry_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (status, code) in [(400, "EntityTooLarge"), (413, "")] {
        let most = segment::encode(&[2, 3].map(|seq| item(seq).line)).unwrap().len();
        let bucket = Bucket::start(move |seen| {
            (seen.method == Method::PUT && seen.key.ends_with(".zst") && seen.size > most).then_some((status, code))
        })
        .await;
        let mut sink = bucket.sink(dir.path());
        let large = item(5);
        let noise: String = (0..4000_u32)
            .map(|i| char::from(b'a' + u8::try_from(i.wrapping_mul(2_654_435_761) >> 28).unwrap()))
            .collect();
        let line = String::from_utf8(large.line.to_vec()).unwrap().replace("\"web\"}", &format!("\"{noise}\"}}"));
        let batch: Vec<Item> = (1..=4).map(item).chain([Item { line: line.into(), ..large }, item(6)]).collect();
        let failure = sink.deliver(&batch).await.unwrap_err();
        assert!(matches!(&failure, Failure { taken: 4, error: SinkError::Refused { .. } }), "{failure}");
        assert!(failure.to_string().contains("raise its limit, or that of a proxy before it"), "{failure}");
        sink.deliver(&batch[5..]).await.unwrap();
        assert!(bucket.sizes().iter().filter(|size| **size <= most).count() >= 3);
    }
}

/// S3 may begin with 200 and end with an error: then nothing was stored, and it is stored again.
#[tokio::test]
async fn a_200_with_an_error_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let first = AtomicBool::new(true);
    let bucket = Bucket::start(move |seen| {
        let fails = seen.method == Method::PUT && seen.key.ends_with(".zst") && first.swap(false, Ordering::SeqCst);
        fails.then_some((200, "InternalError"))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    let failure = sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Retry { .. } }), "{failure}");
    assert!(failure.to_string().contains("InternalError"), "{failure}");
    sink.deliver(&[item(1)]).await.unwrap();
    assert_eq!(bucket.objects.lock().unwrap().keys().filter(|key| key.ends_with(".zst")).count(), 1);
}

/// A server that gives no ETags has stored what it says that it stored.
#[tokio::test]
async fn an_answer_without_an_etag_is_a_success() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::start_with(|_| None, false).await;
    let mut sink = bucket.sink(dir.path());
    for seq in 1..=3 {
        sink.deliver(&[item(seq)]).await.unwrap();
    }
    let segments = bucket.objects.lock().unwrap().keys().filter(|key| key.ends_with(".zst")).count();
    let written = bucket.sizes().len();
    assert_eq!((segments, written), (3, 3), "each is sent once");
}

/// Fault 76: somebody is at work on the same name.
#[tokio::test]
async fn a_conflict_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let first = AtomicBool::new(true);
    let bucket = Bucket::start(move |seen| {
        let conflict = seen.method == Method::PUT && seen.key.ends_with(".zst") && first.swap(false, Ordering::SeqCst);
        conflict.then_some((409, "ConditionalRequestConflict"))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    let failure = sink.deliver(&[item(1)]).await.unwrap_err();
    assert!(matches!(&failure, Failure { taken: 0, error: SinkError::Retry { .. } }), "{failure}");
    sink.deliver(&[item(1)]).await.unwrap();
    assert_eq!(bucket.objects.lock().unwrap().keys().filter(|key| key.ends_with(".zst")).count(), 1);
}

#[tokio::test]
async fn credentials_that_end_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::start(|seen| {
        let token = seen.headers.get("x-amz-security-token").map_or("", |token| token.to_str().unwrap());
        (token != "second").then_some((400, "ExpiredToken"))
    })
    .await;
    let mut sink = bucket.sink(dir.path());
    let error = sink.deliver(&[item(1)]).await.unwrap_err().error;
    let SinkError::Retry { text, after: Some(_) } = &error else { panic!("{error:?}") };
    assert!(text.contains("ExpiredToken; renew the credentials") && !text.contains("geheim"), "{text}");
    let renewed = fs::read_to_string(dir.path().join("aws")).unwrap().replace("first", "second");
    fs::write(dir.path().join("aws"), renewed).unwrap();
    sink.deliver(&[item(1)]).await.unwrap();
}

#[tokio::test]
async fn check_says_who_may_not_write_and_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let denied = |seen: &Seen| (seen.method == Method::PUT).then_some((403, "AccessDenied"));
    let bucket = Bucket::start(denied).await;
    let error = bucket.sink(dir.path()).check().await.unwrap_err().to_string();
    assert!(error.contains("cannot write to the bucket logs") && error.contains("give them the rights"), "{error}");
    let bucket = Bucket::start(|_| None).await;
    bucket.sink(dir.path()).check().await.unwrap();
    assert!(bucket.objects.lock().unwrap().is_empty());
}
