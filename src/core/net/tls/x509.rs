//! Certificates, as far as Go's `crypto/x509` decides by them. The bytes are DER; nothing is copied.

use jiff::civil::Date;
use rustls::pki_types::SignatureVerificationAlgorithm;

use crate::core::terminal::is_obeyed;

/// Tags of DER.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The longest name that a sentence quotes, in characters.
const NAME: usize = 100;

/// A certificate that was read. A field without another word is the content of its DER element.
#[derive(Debug)]
pub(super) struct Certificate<'a> {
    /// 1, 2 or 3.
    pub(super) version: u8,
    pub(super) issuer: &'a [u8],
    pub(super) subject: &'a [u8],
    /// Seconds of Unix time; both ends belong to it.
    pub(super) valid: (i64, i64),
    /// The whole SubjectPublicKeyInfo, with its tag.
    pub(super) key_info: &'a [u8],
    key_algorithm: &'a [u8],
    key: &'a [u8],
    /// The whole signed part, with its tag.
    signed: &'a [u8],
    signature_algorithm: &'a [u8],
    signature: &'a [u8],
    pub(super) extensions: Extensions,
}

/// Extensions of a certificate.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    /// From the basic constraints, where there are any: `cA`, and the most intermediates that may follow.
    pub(super) constraints: Option<(bool, Option<u64>)>,
    /// From the key usage, where there is one: whether it allows the signing of certificates.
    pub(super) may_sign: Option<bool>,
    /// From the extended key usage, where there is one: whether it allows servers of TLS.
    pub(super) for_servers: Option<bool>,
    /// True if there are alternative names.
    pub(super) has_names: bool,
    /// True if names below it are restricted, or policies are.
    pub(super) restricts: bool,
    /// True if an unknown extension is critical.
    pub(super) unknown_critical: bool,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; nothing where Go would not read it either, as far as is looked at here.
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let mut whole = Der(der);
        let mut outer = whole.inner(SEQUENCE)?;
        let signed = outer.element(SEQUENCE)?;
        let signature_algorithm = outer.content(SEQUENCE)?;
        let signature = bits(outer.content(BIT_STRING)?)?;
        let mut tbs = Der(signed).inner(SEQUENCE)?;
        let version = match tbs.optional(0xa0)? {
            Some(version) => Der(version).content(INTEGER).and_then(number)?.checked_add(1)?,
            None => 1,
        };
        // Go reads no negative number.
        if tbs.content(INTEGER)?.first()? & 0x80 != 0 || tbs.content(SEQUENCE)? != signature_algorithm {
            return None;
        }
        let issuer = tbs.content(SEQUENCE)?;
        let mut validity = tbs.inner(SEQUENCE)?;
        let valid = (validity.time()?, validity.time()?);
        let subject = tbs.content(SEQUENCE)?;
        let key_info = tbs.element(SEQUENCE)?;
        let mut info = Der(key_info).inner(SEQUENCE)?;
        let (key_algorithm, key) = (info.content(SEQUENCE)?, bits(info.content(BIT_STRING)?)?);
        // Unique identifiers of the issuer and the subject.
        for tag in [0x81, 0x82] {
            tbs.optional(tag)?;
        }
        let extensions = match tbs.optional(0xa3)? {
            Some(list) if version == 3 => Extensions::read(list)?,
            Some(_) => return None,
            None => Extensions::default(),
        };
        let version = u8::try_from(version).ok().filter(|version| (1..=3).contains(version))?;
        let rest = [whole.0, outer.0, tbs.0].iter().all(|rest| rest.is_empty());
        rest.then_some(Self {
            version,
            issuer,
            subject,
            valid,
            key_info,
            key_algorithm,
            key,
            signed,
            signature_algorithm,
            signature,
            extensions,
        })
    }

    /// Returns the name of the subject for people: its common name, or else its organization.
    pub(super) fn subject_name(&self) -> String {
        name(self.subject)
    }

    /// Returns the name of the issuer for people.
    pub(super) fn issuer_name(&self) -> String {
        name(self.issuer)
    }

    /// Reports whether Go accepts a certificate that this one has signed: `Certificate.CheckSignatureFrom`, without the
    /// signature.
    pub(super) fn may_issue(&self) -> bool {
        let constrained = match self.extensions.constraints {
            Some((is_authority, _)) => is_authority,
            None => self.version < 3,
        };
        constrained && self.extensions.may_sign != Some(false)
    }

    /// Reports whether the key of this certificate made the signature of `child`, by one of the algorithms.
    pub(super) fn signed_child(&self, child: &Self, algorithms: &[&dyn SignatureVerificationAlgorithm]) -> bool {
        algorithms.iter().any(|algorithm| {
            algorithm.public_key_alg_id().as_ref() == self.key_algorithm
                && algorithm.signature_alg_id().as_ref() == child.signature_algorithm
                && algorithm.verify_signature(self.key, child.signed, child.signature).is_ok()
        })
    }

    /// Reports whether it is signed with SHA-1 or MD5, which are no longer accepted anywhere.
    pub(super) fn has_weak_signature(&self) -> bool {
        // md5WithRSAEncryption, sha1WithRSAEncryption; ecdsa-with-SHA1; id-dsa-with-sha1.
        const WEAK: [&[u8]; 4] = [
            &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04],
            &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05],
            &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01],
            &[0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x03],
        ];
        Der(self.signature_algorithm).content(OID).is_some_and(|oid| WEAK.contains(&oid))
    }

    /// The bits of an RSA key; nothing for keys of other kinds.
    pub(super) fn rsa_bits(&self) -> Option<usize> {
        const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
        if Der(self.key_algorithm).content(OID)? != RSA {
            return None;
        }
        let modulus = Der(self.key).inner(SEQUENCE)?.content(INTEGER)?;
        let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
        let unused = usize::try_from(modulus.first()?.leading_zeros()).ok()?;
        Some(modulus.len() * 8 - unused)
    }
}

impl Extensions {
    fn read(list: &[u8]) -> Option<Self> {
        let mut read = Self::default();
        let mut seen: Vec<&[u8]> = Vec::new();
        let mut extensions = Der(list).inner(SEQUENCE)?;
        while !extensions.0.is_empty() {
            let mut extension = extensions.inner(SEQUENCE)?;
            let oid = extension.content(OID)?;
            let critical = extension.optional(BOOLEAN)?.is_some_and(|value| value != [0]);
            let value = extension.content(OCTET_STRING)?;
            if seen.contains(&oid) {
                return None;
            }
            seen.push(oid);
            read.take(oid, critical, value)?;
        }
        Some(read)
    }

    fn take(&mut self, oid: &[u8], critical: bool, value: &[u8]) -> Option<()> {
        // Those of Kubernetes' certificates are all in the arc id-ce, 2.5.29.
        match oid.strip_prefix(&[0x55, 0x1d]) {
            Some([19]) => {
                let mut constraints = Der(value).inner(SEQUENCE)?;
                let is_authority = constraints.optional(BOOLEAN)?.is_some_and(|value| value != [0]);
                let most = constraints.optional(INTEGER)?.map(|most| number(most).ok_or(()));
                self.constraints = Some((is_authority, most.transpose().ok()?));
            }
            Some([15]) => {
                let allowed = Der(value).content(BIT_STRING)?.get(1..)?;
                // A usage without any bit counts as none, as in Go.
                let is_set = allowed.iter().any(|byte| *byte != 0);
                self.may_sign = is_set.then(|| allowed[0] & 0x04 != 0);
            }
            Some([37]) => {
                const SERVERS: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
                const ANY: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
                let mut usages = Der(value).inner(SEQUENCE)?;
                let mut allowed = false;
                while !usages.0.is_empty() {
                    allowed |= [SERVERS, ANY].contains(&usages.content(OID)?);
                }
                self.for_servers = Some(allowed);
            }
            Some([17]) => {
                let mut names = Der(value).inner(SEQUENCE)?;
                // dNSName and iPAddress.
                while let Some((tag, ..)) = names.next() {
                    self.has_names |= [0x82, 0x87].contains(&tag);
                }
            }
            // Name constraints, policy constraints, and inhibitAnyPolicy.
            Some([30 | 36 | 54]) => self.restricts = true,
            // Certificate policies, and where lists of revoked ones are.
            Some([32 | 31]) => {}
            _ => self.unknown_critical |= critical,
        }
        Some(())
    }
}

/// Remaining bytes.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next element: its tag, its content, and all of it.
    fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                // The shortest form alone is DER.
                (bytes[0] != 0 && length >= 0x80).then_some((length, rest))?
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let all = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        Some((tag, content, all))
    }

    fn content(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, ..)| *found == tag).map(|(_, content, _)| content)
    }

    fn element(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, ..)| *found == tag).map(|(.., all)| all)
    }

    fn inner(&mut self, tag: u8) -> Option<Self> {
        self.content(tag).map(Der)
    }

    /// The content where the next element has the tag.
    fn optional(&mut self, tag: u8) -> Option<Option<&'a [u8]>> {
        if self.0.first() == Some(&tag) { self.content(tag).map(Some) } else { Some(None) }
    }

    /// Seconds of Unix time.
    fn time(&mut self) -> Option<i64> {
        let (tag, text, _) = self.next()?;
        let digits = |text: &[u8]| -> Option<i16> {
            text.iter().try_fold(0_i16, |n, byte| byte.is_ascii_digit().then(|| n * 10 + i16::from(byte - b'0')))
        };
        let text = text.strip_suffix(b"Z")?;
        let (year, rest) = match tag {
            UTC_TIME if text.len() == 12 => {
                let year = digits(&text[..2])?;
                (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
            }
            GENERALIZED_TIME if text.len() == 14 => (digits(&text[..4])?, &text[4..]),
            _ => return None,
        };
        let mut parts = rest.chunks(2).map(|part| digits(part).and_then(|part| i8::try_from(part).ok()));
        let mut part = || parts.next().flatten();
        let date = Date::new(year, part()?, part()?).ok()?;
        let time = jiff::civil::Time::new(part()?, part()?, part()?, 0).ok()?;
        // 9999-12-31T23:59:59Z, which is no end (RFC 5280), is beyond the moments of jiff.
        let epoch = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);
        Some(date.to_datetime(time).duration_since(epoch).as_secs())
    }
}

/// The bytes of a bit string that is made of whole bytes.
fn bits(content: &[u8]) -> Option<&[u8]> {
    content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, bytes)| bytes)
}

/// A number that is not negative and has at most eight bytes.
fn number(content: &[u8]) -> Option<u64> {
    let fits = !content.is_empty() && content[0] & 0x80 == 0 && content.len() <= 8;
    fits.then(|| content.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// A name for people: its common name, or else its organization; else a word that says that there is none.
fn name(sets: &[u8]) -> String {
    let attribute = |wanted: &[u8]| {
        let mut sets = Der(sets);
        let mut found = None;
        while let Some(mut set) = sets.inner(SET) {
            while let Some(mut pair) = set.inner(SEQUENCE) {
                if pair.content(OID) == Some(wanted) {
                    found = pair.next().map(|(_, text, _)| String::from_utf8_lossy(text).into_owned());
                }
            }
        }
        found
    };
    let found = attribute(&[0x55, 0x04, 0x03]).or_else(|| attribute(&[0x55, 0x04, 0x0a]));
    let is_plain = |c: &char| !is_obeyed(*c);
    match found {
        Some(text) => format!("\"{}\"", text.chars().filter(is_plain).take(NAME).collect::<String>()),
        None => "without a name".to_owned(),
    }
}
