//! Questions to a decklog inside the cluster, which the API server's proxy sends on to it.

use http::{HeaderValue, Method, Request, Response, header};
use kube::client::Body;
use tokio::time::timeout;

use super::{Api, Failure, failure, proxied};
use crate::core::net::{TOKEN_HEADER, USER_AGENT};

impl Api {
    /// Reports whether requests show a token: a user with a certificate alone has none.
    #[must_use]
    pub fn shows_token(&self) -> bool {
        self.current(|current| current.shows_token)
    }

    /// The namespace of the context.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.current(|current| current.client.default_namespace().to_owned())
    }

    /// Posts JSON to a decklog inside the cluster. `path` is that of the API server's proxy. `token` is for decklog alone; without it
    /// decklog is shown the token that the API server is shown. The answer may be one of the API server: [`super::refusal`].
    ///
    /// # Errors
    /// Where there is no answer.
    pub async fn post_to_decklog(
        &self,
        path: &str,
        token: Option<HeaderValue>,
        body: Vec<u8>,
    ) -> Result<Response<Body>, Failure> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))
            .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut request = proxied::marked(request);
        if let Some(token) = token {
            request = request.header(TOKEN_HEADER, token);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|error| Failure::Refused(format!("the request {path} cannot be made: {error}")))?;
        let (client, _) = self.client().await;
        match timeout(self.limits().head, client.send(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(failure::no_answer(&error)),
            Err(_elapsed) => Err(Failure::Away("the API server does not answer".to_owned())),
        }
    }
}
