//! The client that the library sends its requests with: ours, and what the answers to writes mean where servers are not as the
//! library expects them.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::header::{ETAG, HeaderValue};
use reqwest::{Client, Method, StatusCode};

/// Bytes of the answer to a write that are read: an error is far shorter.
const ANSWER_BYTES: usize = 16 << 10;

/// Time limit for the body of an answer to a write.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// Gives the library our client, with our idea of TLS and of proxies.
#[derive(Debug)]
pub(super) struct Connector(pub(super) Client);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Answers(self.0.clone())))
    }
}

#[derive(Debug)]
struct Answers(Client);

impl HttpService for Answers {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> BoxFuture<'a, Result<HttpResponse, HttpError>>
    where
        's: 'a,
        Self: 'a,
    {
        async move {
            let is_write = request.method() == Method::PUT;
            let answer = self.0.call(request).await?;
            Ok(if is_write && answer.status().is_success() { judged(answer).await } else { answer })
        }
        .boxed()
    }
}

/// The answer to a write that has begun with a success. Servers that hold a connection open while they work may end it with an
/// error, which is one then (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html>). One without an ETag is a success
/// all the same, which the library does not take for one.
async fn judged(answer: HttpResponse) -> HttpResponse {
    let (mut head, body) = answer.into_parts();
    let mut text = Vec::new();
    let mut parts = body.bytes_stream();
    let all = async {
        while let Some(Ok(part)) = parts.next().await
            && text.len() < ANSWER_BYTES
        {
            text.extend_from_slice(&part);
        }
    };
    // What was read until then counts.
    drop(tokio::time::timeout(BODY_WAIT, all).await);
    if text.windows(b"<Error>".len()).any(|part| part == b"<Error>") {
        head.status = StatusCode::INTERNAL_SERVER_ERROR;
    } else {
        head.headers.entry(ETAG).or_insert(HeaderValue::from_static("\"none\""));
    }
    HttpResponse::from_parts(head, HttpResponseBody::from(text))
}
