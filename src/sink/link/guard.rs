//! Guard of destinations: no events go to link-local addresses, behind which clouds hand out credentials to every client of the
//! machine. It checks the resolved address of each connection, because a name may resolve differently each time. Loopback is
//! permitted: a collector beside decklog is common. With `allow_networks` only those networks are permitted.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::sink::settings::Network;

/// Resolves names, and refuses those that lead where nothing may go.
#[derive(Clone, Debug)]
pub(super) struct Guard<L>(pub(super) L, pub(super) Allowed);

/// The networks that events may go to; none for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowed(pub(super) Vec<Network>);

impl Allowed {
    pub(super) const fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    fn takes(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.is_everything() || self.0.iter().any(|network| network.contains(&address))
    }
}

/// Looks a name up.
pub(super) trait Lookup: Clone + Send + Sync + 'static {
    /// Its addresses.
    fn lookup(&self, host: String) -> impl Future<Output = std::io::Result<Vec<IpAddr>>> + Send;
}

/// Resolver of the system.
#[derive(Clone, Debug)]
pub(super) struct System;

impl Lookup for System {
    async fn lookup(&self, host: String) -> std::io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

impl<L: Lookup> Resolve for Guard<L> {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, allowed) = (self.0.clone(), self.1.clone());
        Box::pin(async move {
            let addresses = lookup.lookup(name.as_str().to_owned()).await?;
            if let Some(address) = addresses.iter().find(|address| is_forbidden(**address)) {
                return Err(format!("{} resolves to {address}, {WHY}", name.as_str()).into());
            }
            let found = addresses.first().copied();
            let addresses: Vec<IpAddr> = addresses.into_iter().filter(|address| allowed.takes(*address)).collect();
            if let (Some(found), []) = (found, &addresses[..]) {
                return Err(format!("{} resolves to {found}, {OUTSIDE}", name.as_str()).into());
            }
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok::<_, Box<dyn Error + Send + Sync>>(addresses)
        })
    }
}

/// Reason for people.
const WHY: &str = "a link-local address, where clouds hand out credentials; decklog sends nothing there";

const OUTSIDE: &str = "which is in none of `allow_networks`";

/// Refuses a URL whose host is such an address itself, which no name has to be resolved for.
pub(super) fn look_at(url: &Url, allowed: &Allowed) -> Result<(), String> {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    match address {
        Ok(address) if is_forbidden(address) => Err(format!("`url` names {address}, {WHY}")),
        Ok(address) if !allowed.takes(address) => Err(format!("`url` names {address}, {OUTSIDE}")),
        _ => Ok(()),
    }
}

fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || METADATA.contains(&address)
                || inner(address).is_some_and(|v4| v4.is_link_local())
        }
    }
}

/// Metadata services of clouds in IPv6 that are not link-local.
const METADATA: [Ipv6Addr; 1] = [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)];

/// The IPv4 address inside an IPv6 address: mapped, or behind NAT64.
fn inner(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let nat64 = [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0];
    let behind = nat64.then(|| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    address.to_ipv4_mapped().or(behind)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Another address at each look.
    #[derive(Clone)]
    struct Script(Arc<AtomicUsize>, Vec<IpAddr>);

    impl Lookup for Script {
        async fn lookup(&self, _host: String) -> std::io::Result<Vec<IpAddr>> {
            Ok(vec![self.1[self.0.fetch_add(1, Ordering::Relaxed).min(self.1.len() - 1)]])
        }
    }

    #[test]
    fn addresses_are_recognised_in_each_of_their_forms() {
        for forbidden in [
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "febf::a:b",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(is_forbidden(forbidden.parse().unwrap()), "{forbidden}");
        }
        for fine in ["127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "169.253.1.1", "fd00::1", "2001:db8::1", "fec0::1"]
        {
            assert!(!is_forbidden(fine.parse().unwrap()), "{fine}");
        }
    }

    /// Fault 66: a URL that names a metadata address is refused in every spelling of it.
    #[test]
    fn a_url_that_names_a_metadata_address_can_never_work() {
        for url in ["http://169.254.169.254/", "http://2852039166/", "http://0xa9fea9fe/x", "https://[fe80::1]:8443/"] {
            let text = look_at(&Url::parse(url).unwrap(), &Allowed::default()).unwrap_err();
            assert!(text.contains("link-local"), "{text}");
        }
        for url in ["http://127.0.0.1:8080/", "http://[::1]/", "https://collector.example/", "http://10.0.0.7/"] {
            look_at(&Url::parse(url).unwrap(), &Allowed::default()).unwrap();
        }
    }

    #[tokio::test]
    async fn with_networks_nothing_goes_anywhere_else() {
        let allowed = Allowed(["10.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().unwrap()).to_vec());
        for (address, takes) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("2001:db8::1", true),
            ("11.0.0.1", false),
            ("127.0.0.1", false),
            ("::ffff:11.0.0.1", false),
            ("64:ff9b::a01:203", false),
        ] {
            assert_eq!(allowed.takes(address.parse().unwrap()), takes, "{address}");
        }
        look_at(&Url::parse("http://10.1.2.3:8080/").unwrap(), &allowed).unwrap();
        let text = look_at(&Url::parse("http://[::1]/").unwrap(), &allowed).unwrap_err();
        assert!(text.contains("in none of `allow_networks`"), "{text}");
        // Of several addresses those that are allowed, and an error where there is none.
        let resolve = async |addresses: &[&str]| {
            let found: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let guard = Guard(Fixed(found), allowed.clone());
            let addresses =
                guard.resolve("collector.example".parse().unwrap()).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(addresses.map(|address| address.ip().to_string()).collect::<Vec<_>>())
        };
        assert_eq!(resolve(&["127.0.0.1", "10.0.0.9"]).await, Ok(vec!["10.0.0.9".to_owned()]));
        let text = resolve(&["192.168.0.1"]).await.unwrap_err();
        assert_eq!(text, "collector.example resolves to 192.168.0.1, which is in none of `allow_networks`");
    }

    /// The same addresses at each look.
    #[derive(Clone)]
    struct Fixed(Vec<IpAddr>);

    impl Lookup for Fixed {
        async fn lookup(&self, _host: String) -> std::io::Result<Vec<IpAddr>> {
            Ok(self.0.clone())
        }
    }

    /// Fault 66: a name is looked at after it was resolved, and again at each connection: it may lead elsewhere by then.
    #[tokio::test]
    async fn a_name_that_leads_to_a_metadata_address_is_refused_at_each_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let steps = ["127.0.0.1", "169.254.169.254", "fd00:ec2::254"].map(|text| text.parse().unwrap()).to_vec();
        let asked = Arc::new(AtomicUsize::new(0));
        crate::core::net::install_crypto_provider();
        let client = reqwest::Client::builder()
            .tls_certs_only([])
            .no_proxy()
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(Guard(Script(Arc::clone(&asked), steps), Allowed::default())))
            .build()
            .unwrap();
        let url = format!("http://collector.example:{port}/");
        let mut requests = tokio::task::JoinSet::new();
        let request = client.post(&url).body("{}").send();
        requests.spawn(async move { request.await.is_ok() });
        // The first time it leads to a good place, which somebody reaches.
        drop(listener.accept().await.unwrap());
        assert!(!requests.join_next().await.unwrap().unwrap(), "it was cut without an answer");
        for _ in 0..3 {
            let error = client.post(&url).body("{}").send().await.unwrap_err();
            let text = super::super::chain(&error);
            assert!(error.is_connect() && text.contains("link-local"), "{text}");
        }
        // The retry inside of the client, if any, asked as well.
        assert!(asked.load(Ordering::Relaxed) >= 4);
    }
}
