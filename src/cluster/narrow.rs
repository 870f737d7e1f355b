//! Plain HTTP that is read in small pieces. hyper keeps a buffer for each connection, as large as the most that was ever
//! read at once: with hundreds of watches that would be most of the memory. Over TLS no piece is larger than a record.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http::Uri;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tokio::net::TcpStream;
use tower::util::option_layer;
use tower::{BoxError, Service, ServiceExt};

/// The most that is read at once: as much as a record of TLS holds.
const PIECE: usize = 16 << 10;

/// A client for an API server that is reached in plain HTTP and without a proxy.
pub(super) fn client(config: &Config) -> Result<Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(config.connect_timeout);
    let client = legacy::Builder::new(TokioExecutor::new()).build::<_, Body>(Narrow(connector));
    let client = ServiceExt::<http::Request<Body>>::map_err(client, BoxError::from);
    Ok(ClientBuilder::new(client, config.default_namespace.clone())
        .with_layer(&config.extra_headers_layer()?)
        .with_layer(&option_layer(config.auth_layer()?))
        .with_layer(&config.base_uri_layer())
        .build())
}

#[derive(Clone)]
struct Narrow(HttpConnector);

impl Service<Uri> for Narrow {
    type Response = Pieces;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Pieces, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        self.0.call(to).map_ok(|stream| Pieces { stream, piece: vec![0; PIECE].into() }).boxed()
    }
}

struct Pieces {
    stream: TokioIo<TcpStream>,
    piece: Box<[u8]>,
}

impl Connection for Pieces {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, piece } = &mut *self;
        let most = piece.len().min(into.remaining());
        let mut read = ReadBuf::new(&mut piece[..most]);
        let done = Pin::new(stream).poll_read(context, read.unfilled());
        if matches!(done, Poll::Ready(Ok(()))) {
            into.put_slice(read.filled());
        }
        done
    }
}

impl Write for Pieces {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
