//! The way to a server: directly, or through the proxy that the environment names for it.

use std::error::Error;

use reqwest::{ClientBuilder, Url};

use crate::core::net::proxy::{InvalidProxy, Proxies, Proxy};

/// Route to one server: direct, or through a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Route(Result<Option<Proxy>, InvalidProxy>);

impl Route {
    /// No proxy, whatever the environment says.
    pub(crate) const fn direct() -> Self {
        Self(Ok(None))
    }

    /// The way to a URL by the variables of this process (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`).
    pub(crate) fn to(url: &Url) -> Self {
        Self::by(&Proxies::from_environment(), url)
    }

    fn by(proxies: &Proxies, url: &Url) -> Self {
        Self(proxies.for_url(url).map(Option::<&Proxy>::cloned))
    }

    /// The proxy, where there is one that can be used.
    pub(crate) fn proxy(&self) -> Option<&Proxy> {
        self.0.as_ref().ok().and_then(Option::as_ref)
    }

    /// Has a client take this way.
    ///
    /// # Errors
    /// Where the variable that counts holds no proxy. One sentence that says what to do.
    pub(crate) fn set(&self, builder: ClientBuilder) -> Result<ClientBuilder, String> {
        // The library reads the environment in its own way.
        let builder = builder.no_proxy();
        match &self.0 {
            Err(invalid) => Err(format!("{invalid}, and restart decklog")),
            Ok(None) => Ok(builder),
            Ok(Some(proxy)) => {
                let unusable =
                    |_| format!("{proxy} cannot be used as a proxy; correct the variable and restart decklog");
                Ok(builder.proxy(reqwest::Proxy::all(resolving(proxy)).map_err(unusable)?))
            }
        }
    }

    /// Configures as [`Route::set`] does a client of several servers, such as those that hand out credentials: each is reached
    /// by the variables. The metadata service of the machine itself (169.254.0.0/16) is reached directly.
    ///
    /// # Errors
    /// As [`Route::set`].
    #[cfg(feature = "s3")]
    pub(crate) fn set_each(&self, builder: ClientBuilder) -> Result<ClientBuilder, String> {
        if let Err(invalid) = &self.0 {
            return Err(format!("{invalid}, and restart decklog"));
        }
        let proxies = Proxies::from_environment();
        let to = move |url: &Url| {
            let address = url.host_str().and_then(|host| host.parse::<std::net::Ipv4Addr>().ok());
            let proxy = proxies.for_url(url).ok().flatten();
            proxy.filter(|_| !address.is_some_and(|address| address.is_link_local())).map(resolving)
        };
        Ok(builder.no_proxy().proxy(reqwest::Proxy::custom(to)))
    }

    /// ` through http://proxy.example:3128 ($HTTPS_PROXY)`, without credentials; nothing where no proxy is used.
    pub(crate) fn through(&self) -> String {
        self.proxy().map(|proxy| format!(" through {proxy}")).unwrap_or_default()
    }

    /// The password of the proxy, which no text quotes.
    pub(super) fn secret(&self) -> Option<String> {
        self.proxy().and_then(Proxy::credentials).map(|(_, password)| password)
    }
}

/// The address of a proxy that resolves names itself: the library does that for it with `socks5`, and Go leaves it to the proxy.
fn resolving(proxy: &Proxy) -> Url {
    let url = proxy.url();
    match url.scheme() {
        "socks5" => url.as_str().replacen("socks5", "socks5h", 1).parse().expect("a URL with another scheme is one"),
        _ => url.clone(),
    }
}

/// Error for a proxy that answers 407.
pub(super) const ASKS_FOR_A_PASSWORD: &str =
    "the proxy asks for another user and password; write http://USER:PASSWORD@HOST:PORT into that variable";

/// Returns the refusal of a proxy; none if it connected, or was not reached.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let texts = super::all(error).map(ToString::to_string);
    texts.into_iter().find_map(|text| match text.as_str() {
        "tunnel error: proxy authorization required" => {
            Some(ASKS_FOR_A_PASSWORD)
        }
        "tunnel error: unsuccessful" => Some("the proxy does not connect there; allow it on the proxy, or name the host in $NO_PROXY"),
        "tunnel error: unexpected end of file" | "tunnel error: proxy response headers too long" => {
            Some("the server there is no HTTP proxy; correct that variable")
        }
        _ if text.starts_with("SOCKS error: ") => {
            Some("the SOCKS proxy does not connect there; allow it on the proxy, correct the user and the password, or name the host in $NO_PROXY")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(variable: &str, value: &str, url: &str) -> Route {
        let proxies = Proxies::read(|name| (name == variable).then(|| value.to_owned()));
        Route::by(&proxies, &url.parse().unwrap())
    }

    #[test]
    fn a_proxy_is_named_without_its_credentials() {
        for (variable, value, url, through) in [
            ("HTTPS_PROXY", "http://u:hunter2@p:3128", "https://c.example", " through http://p:3128 ($HTTPS_PROXY)"),
            ("http_proxy", "socks5://u:hunter2@p", "http://c.example", " through socks5://p:1080 ($http_proxy)"),
            ("HTTPS_PROXY", "http://p", "http://c.example", ""),
            ("HTTP_PROXY", "http://p", "http://127.0.0.1:4318", ""),
            ("ALL_PROXY", "http://p", "http://c.example", ""),
        ] {
            let route = route(variable, value, url);
            assert_eq!(route.through(), through, "{variable}={value} {url}");
            assert_eq!(route.secret().is_some_and(|secret| secret == "hunter2"), value.contains("hunter2"));
            route.set(reqwest::Client::builder()).map(drop).unwrap();
        }
    }

    #[test]
    fn what_is_no_proxy_says_so_and_quotes_nothing() {
        let route = route("HTTPS_PROXY", "ftp://u:hunter2@p", "https://c.example");
        let text = route.set(reqwest::Client::builder()).unwrap_err();
        assert!(text.starts_with("$HTTPS_PROXY holds no proxy") && text.ends_with("restart decklog"), "{text}");
        assert!(!text.contains("hunter2") && route.proxy().is_none());
    }
}
