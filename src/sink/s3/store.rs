//! Store of the segments: a bucket, or a folder.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, Checksum};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::signer::Signer;
use object_store::{
    BackoffConfig, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig, StaticCredentialProvider,
    UpdateVersion,
};
use reqwest::{Client, Method, StatusCode, redirect};
use rustix::fs::{Access, access};

use super::client::Connector;
use super::folder::Folder;
use super::{BucketUrl, Settings};
use crate::core::credential_files::Followed;
use crate::sink::link::{self, Route, chain};
use crate::sink::tls::Tls;
use crate::sink::{SinkError, UNNAMED};

/// The region where none is named.
const REGION: &str = "us-east-1";

/// Texts by which servers, and proxies before them, report that an object is too large.
const TOO_LARGE: [&str; 2] = ["EntityTooLarge", "413 Payload Too Large"];

/// The connection, as the library has it.
struct Open {
    objects: Arc<dyn ObjectStore>,
    /// For what is about the bucket itself.
    bucket: Option<(AmazonS3, Client)>,
}

/// Access to the location. Credentials and certificates from files are read again when they change.
pub(super) struct Store {
    place: BucketUrl,
    /// Location for people.
    pub(super) shown: String,
    /// The name of the sink.
    pub(super) sink: String,
    endpoint: Option<String>,
    region: Option<String>,
    credentials: Option<Followed>,
    tls: Tls,
    route: Route,
    timeout: Duration,
    /// Each object has its checksum in its headers, without which a bucket with retention takes none.
    pub(super) has_checksums: bool,
    open: Option<Open>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("place", &self.shown).finish_non_exhaustive()
    }
}

impl Store {
    pub(super) fn new(config: &Settings) -> Result<Self, String> {
        let place = config.url.clone();
        let shown = match &place {
            BucketUrl::Folder(path) => path.display().to_string(),
            BucketUrl::Bucket { bucket, .. } => match &config.endpoint {
                Some(endpoint) => {
                    format!("the bucket {bucket} at {}", link::shown(endpoint.as_str()).trim_end_matches('/'))
                }
                None => format!("the bucket {bucket}"),
            },
        };
        Ok(Self {
            place,
            shown,
            sink: UNNAMED.to_owned(),
            endpoint: config.endpoint.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned()),
            region: config.region.clone(),
            credentials: config.credentials_file.as_deref().map(Followed::new),
            tls: Tls::new(&config.tls)?,
            route: route(config),
            timeout: *config.timeout,
            has_checksums: false,
            open: None,
        })
    }

    /// Connections are made again, and files must be readable now.
    pub(super) fn renew(&mut self) {
        self.open = None;
        self.tls.forget();
        if let Some(file) = &mut self.credentials {
            file.forget();
        }
    }

    /// The place, opened again where its files have changed.
    pub(super) async fn objects(&mut self) -> Result<Arc<dyn ObjectStore>, SinkError> {
        let mut other = false;
        if let Some(file) = &mut self.credentials {
            other |= file.refresh().await?;
        }
        let tls = match &self.place {
            BucketUrl::Bucket { .. } => Some(self.tls.refresh().await?),
            BucketUrl::Folder(_) => None,
        };
        other |= tls.as_ref().is_some_and(|(_, other)| *other);
        // A folder is looked for each time: what is not mounted any more is not made again.
        if let (Some(open), BucketUrl::Bucket { .. }) = (&self.open, &self.place)
            && !other
        {
            return Ok(Arc::clone(&open.objects));
        }
        let open = match (&self.place, tls) {
            (BucketUrl::Bucket { prefix, .. }, Some((tls, _))) => {
                let builder = self.route.set_each(Client::builder()).map_err(SinkError::halt)?;
                let client = builder
                    .user_agent(concat!("decklog/", env!("CARGO_PKG_VERSION")))
                    .redirect(redirect::Policy::none())
                    .referer(false)
                    .timeout(self.timeout)
                    .tls_backend_preconfigured((*tls).clone())
                    .build()
                    .map_err(|error| SinkError::retry(format!("cannot set up TLS: {error}")))?;
                let bucket = self.bucket(client.clone())?;
                let prefix =
                    Path::parse(prefix).map_err(|_| SinkError::halt("no object can have the prefix of `url`"))?;
                let objects = Arc::new(PrefixStore::new(bucket.clone(), prefix));
                Open { objects, bucket: Some((bucket, client)) }
            }
            _ => Open { objects: Arc::new(self.folder()?), bucket: None },
        };
        let objects = Arc::clone(&open.objects);
        self.open = Some(open);
        Ok(objects)
    }

    fn folder(&self) -> Result<Folder, SinkError> {
        let BucketUrl::Folder(path) = &self.place else { return Err(SinkError::halt("a bucket is no folder")) };
        let folder = LocalFileSystem::new_with_prefix(path).map_err(|_| {
            SinkError::retry(format!(
                "the folder {} does not exist or cannot be entered; create it, writable for decklog's user: delivery then goes on",
                path.display()
            ))
        })?;
        Ok(Folder::new(folder))
    }

    fn bucket(&self, client: Client) -> Result<AmazonS3, SinkError> {
        let BucketUrl::Bucket { bucket, .. } = &self.place else {
            return Err(SinkError::halt("a folder is no bucket"));
        };
        // Delivery decides when to try again.
        let retry = RetryConfig { max_retries: 0, retry_timeout: self.timeout, backoff: BackoffConfig::default() };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .with_http_connector(Connector(client));
        if self.has_checksums {
            builder = builder.with_checksum_algorithm(Checksum::SHA256);
        }
        if let Some(endpoint) = &self.endpoint {
            builder = builder
                .with_endpoint(endpoint)
                .with_config(AmazonS3ConfigKey::S3Endpoint, endpoint)
                .with_allow_http(endpoint.starts_with("http://"));
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(file) = &self.credentials {
            let key = AccessKey::parse(file.text()?).ok_or_else(|| {
                SinkError::retry(format!(
                    "{} holds no aws_access_key_id and aws_secret_access_key under [default]; write them as the AWS programs have them",
                    file.path().display()
                ))
            })?;
            // In the place of all that the environment has, a token among it.
            let key = AwsCredential { key_id: key.id, secret_key: key.secret, token: key.token };
            builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(key)));
        }
        builder.build().map_err(|error| SinkError::halt(format!("{} cannot be used: {error}", self.shown)))
    }

    /// The proxy that it is reached through, as a part of a sentence.
    pub(super) fn through(&self) -> String {
        self.route.through()
    }

    /// A sentence about what failed.
    pub(super) fn failed(&self, what: &str, error: &object_store::Error) -> SinkError {
        let shown = &format!("{}{}", self.shown, self.route.through());
        let (said, all) = (said(error), chain(error));
        if said.contains("NoSuchBucket") {
            return SinkError::retry(format!(
                "{shown} does not exist; `decklog sink init {}` makes it, or prints how to with --print: delivery then goes on",
                self.sink
            ));
        }
        // The machine's metadata is where the library looks last.
        if all.contains("//169.254.") {
            return SinkError::retry(format!(
                "there is no access key for {shown}: no `credentials_file`, none in the environment, and none from the machine or the Pod ({said})"
            ));
        }
        let BucketUrl::Bucket { .. } = &self.place else {
            return SinkError::retry(format!("cannot {what} {shown}: {said}"));
        };
        let says = |words: &[&str]| words.iter().any(|word| all.contains(word));
        if says(&TOO_LARGE) {
            let text =
                format!("{shown} takes no object of that size: {said}; raise its limit, or that of a proxy before it");
            return SinkError::Refused { text };
        }
        if says(&["NotImplemented", "501 Not Implemented"]) {
            return self.keeps_no_conditions();
        }
        let refused =
            matches!(error, object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. });
        // Of a list the library does not distinguish it.
        if refused || says(&["ExpiredToken", "InvalidToken", "403 Forbidden", "401 Unauthorized"]) {
            return SinkError::renew(format!(
                "cannot {what} {shown}: {said}; renew the credentials or give them the rights to get, put and list, and to delete below manifest/ and shared/: they are read again before each try"
            ));
        }
        SinkError::retry(format!("cannot {what} {shown}: {said}"))
    }

    /// The server writes over what is there, or cannot be kept from it.
    pub(super) fn keeps_no_conditions(&self) -> SinkError {
        SinkError::halt(format!(
            "{} does not keep conditional writes (If-None-Match), without which a segment could be written over; use a server that does, and send SIGHUP",
            self.shown
        ))
    }

    /// Returns the instructions to create the location.
    pub(super) fn needs(&self) -> String {
        match &self.place {
            BucketUrl::Folder(path) => format!("mkdir -p {}\n", quoted(&path.to_string_lossy())),
            BucketUrl::Bucket { bucket, .. } => {
                let endpoint = self.endpoint.as_ref().map(|endpoint| format!(" --endpoint-url {}", quoted(endpoint)));
                let region = self.region.as_deref().unwrap_or(REGION);
                let place = match region {
                    REGION => String::new(),
                    other => format!(" --create-bucket-configuration LocationConstraint={other}"),
                };
                format!(
                    "aws s3api create-bucket --bucket {bucket} --region {}{place}{}\n",
                    quoted(region),
                    endpoint.unwrap_or_default()
                )
            }
        }
    }

    /// Makes the place. Returns whether it was not there before.
    pub(super) async fn make(&mut self) -> Result<bool, SinkError> {
        if let BucketUrl::Folder(path) = &self.place {
            let there = tokio::fs::try_exists(path).await.unwrap_or_default();
            let made = tokio::fs::create_dir_all(path).await;
            made.map_err(|error| SinkError::retry(format!("cannot create {}: {error}", path.display())))?;
            return Ok(!there);
        }
        self.objects().await?;
        let Some((bucket, client)) = self.open.as_ref().and_then(|open| open.bucket.as_ref()) else {
            return Err(SinkError::retry("the connection is not set up"));
        };
        let signed = bucket.signed_url(Method::PUT, &Path::default(), Duration::from_mins(5)).await;
        let url = signed.map_err(|error| self.failed("make", &error))?;
        let body = match self.region.as_deref() {
            None | Some(REGION) => String::new(),
            Some(region) => format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
            ),
        };
        // The URL holds a signature: no error quotes it.
        let failed = |why: String| SinkError::retry(format!("cannot make {}: {why}", self.shown));
        let answer = client.put(url).body(body).send().await;
        let answer = answer.map_err(|error| failed(link::cause(&error.without_url())))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| failed(link::cause(&error.without_url())))?;
        match status {
            _ if status.is_success() => Ok(true),
            StatusCode::CONFLICT if text.contains("BucketAlreadyOwnedByYou") => Ok(false),
            _ => Err(failed(code(&text).unwrap_or_else(|| status.to_string()))),
        }
    }

    /// Checks for obstacles to writing.
    pub(super) async fn verify(&mut self) -> Result<(), SinkError> {
        let objects = self.objects().await?;
        if let Some(Err(error)) = objects.list(None).next().await {
            return Err(self.failed("list", &error));
        }
        if let Some(folder) = self.as_folder() {
            access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
                SinkError::retry(format!("cannot write to {}: {error}; let decklog's user do that", folder.display()))
            })?;
            return Ok(());
        }
        // What would change an object that is not there. Whoever may not write learns that before the answer is looked
        // at.
        let key = Path::from("check");
        let other = UpdateVersion { e_tag: Some("\"none\"".to_owned()), version: None };
        match objects.put_opts(&key, PutPayload::new(), PutOptions::from(PutMode::Update(other))).await {
            // One that does not look at it has made an empty object.
            Ok(_) => drop(objects.delete(&key).await),
            Err(
                error @ (object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }),
            ) => {
                return Err(self.failed("write to", &error));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// The folder, where it is one.
    pub(super) fn as_folder(&self) -> Option<&std::path::Path> {
        match &self.place {
            BucketUrl::Folder(path) => Some(path),
            BucketUrl::Bucket { .. } => None,
        }
    }
}

/// The way to the server: the one of `endpoint`, or Amazon's.
fn route(config: &Settings) -> Route {
    let amazon = || {
        let region = config.region.clone().or_else(|| std::env::var("AWS_REGION").ok());
        format!("https://s3.{}.amazonaws.com", region.as_deref().unwrap_or(REGION)).parse().ok()
    };
    match (&config.url, &config.endpoint) {
        (BucketUrl::Folder(_), _) => Route::direct(),
        (BucketUrl::Bucket { .. }, Some(endpoint)) => Route::to(endpoint),
        (BucketUrl::Bucket { .. }, None) => amazon().map_or(Route::direct(), |url| Route::to(&url)),
    }
}

/// A word as shells have it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An access key in a file as the AWS programs have it.
#[derive(Debug, PartialEq, Eq)]
struct AccessKey {
    id: String,
    secret: String,
    token: Option<String>,
}

impl AccessKey {
    fn parse(text: &str) -> Option<Self> {
        let (mut id, mut secret, mut token) = (None, None, None);
        let mut default = true;
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if line.starts_with('[') {
                default = line == "[default]";
            }
            let Some((key, value)) = line.split_once('=').filter(|_| default) else { continue };
            let value = Some(value.trim().to_owned());
            match key.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
        Some(Self { id: id?, secret: secret?, token })
    }
}

/// Returns the error in one line: code and text of S3's answer, or the reason why there was none.
pub(super) fn said(error: &object_store::Error) -> String {
    code(&chain(error)).unwrap_or_else(|| link::cause(error))
}

/// `CODE: TEXT` of S3's answer.
fn code(text: &str) -> Option<String> {
    let tag = |name: &str| {
        let rest = text.split_once(&format!("<{name}>"))?.1;
        Some(rest.split_once('<')?.0)
    };
    let code = tag("Code")?;
    Some(match tag("Message") {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_key_is_read_as_the_aws_programs_have_it() {
        let key = |token: Option<&str>| {
            Some(AccessKey { id: "AK".into(), secret: "s=c/t".into(), token: token.map(str::to_owned) })
        };
        let text = "# mine\n[other]\naws_access_key_id = X\n[default]\naws_access_key_id=AK\n aws_secret_access_key = s=c/t\nregion = y\n";
        assert_eq!(AccessKey::parse(text), key(None));
        assert_eq!(
            AccessKey::parse(&format!("{text}aws_session_token = t\n[x]\naws_access_key_id = Z")),
            key(Some("t"))
        );
        assert_eq!(AccessKey::parse("aws_access_key_id=AK\naws_secret_access_key=s=c/t"), key(None));
        assert_eq!(AccessKey::parse("[default]\naws_access_key_id = AK\n"), None);
        assert_eq!(AccessKey::parse("[other]\naws_access_key_id = AK\naws_secret_access_key = x"), None);
    }

    #[test]
    fn an_answer_of_s3_is_quoted_in_one_line() {
        let answer = "Error performing PUT http://x/y in 2ms - <?xml?><Error><Code>SlowDown</Code><Message>Reduce it</Message></Error>";
        assert_eq!(code(answer).as_deref(), Some("SlowDown: Reduce it"));
        assert_eq!(code("<Code>X</Code>").as_deref(), Some("X"));
        assert_eq!(code("no answer"), None);
    }
}
