//! Resources as kubectl spells them: by plural, singular, short name or kind; each alone, with its group, or with version
//! and group.

use crate::core::model::Resource;

/// By which of its names a resource is meant. The plural counts for more than the singular, that for more than a short
/// name, and that for more than the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// `deployments`.
    Plural,
    /// `deployment`.
    Singular,
    /// `deploy`.
    Short,
    /// `Deployment`.
    Kind,
}

/// A spelling. The case of letters does not matter, as in kubectl.
#[derive(Clone, Copy, Debug)]
pub struct Spelling<'t> {
    /// The name, without what follows its first dot.
    pub name: &'t str,
    /// `GROUP`, `VERSION`, or `VERSION.GROUP`.
    qualifier: Option<&'t str>,
}

impl<'t> Spelling<'t> {
    /// Reads one.
    #[must_use]
    pub fn of(text: &'t str) -> Self {
        match text.split_once('.') {
            Some((name, qualifier)) => Self { name, qualifier: Some(qualifier) },
            None => Self { name: text, qualifier: None },
        }
    }

    /// By which of its names it means this resource, whatever its group; nothing where it does not.
    #[must_use]
    pub fn form(&self, resource: &Resource) -> Option<Form> {
        let is = |name: &str| !name.is_empty() && name.eq_ignore_ascii_case(self.name);
        match resource {
            _ if is(&resource.plural) => Some(Form::Plural),
            _ if is(&resource.singular) => Some(Form::Singular),
            _ if resource.short_names.iter().any(|name| is(name)) => Some(Form::Short),
            _ => is(&resource.kind).then_some(Form::Kind),
        }
    }

    /// Reports whether it leaves the group open or names that of this resource.
    #[must_use]
    pub fn is_of_group(&self, resource: &Resource) -> bool {
        self.qualifier.is_none_or(|group| group.eq_ignore_ascii_case(&resource.group))
    }

    /// Reports whether it names the version and the group of this resource: `v1.apps`, and `v1.` or `v1` for core.
    #[must_use]
    pub fn is_of_version(&self, resource: &Resource) -> bool {
        self.qualifier.is_some_and(|qualifier| {
            let (version, group) = qualifier.split_once('.').unwrap_or((qualifier, ""));
            version.eq_ignore_ascii_case(&resource.version) && group.eq_ignore_ascii_case(&resource.group)
        })
    }

    /// Reports whether its group and version, if it has any, are those of this resource.
    #[must_use]
    pub fn is_where(&self, resource: &Resource) -> bool {
        self.is_of_group(resource) || self.is_of_version(resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, plural: &str, singular: &str, short: &str, kind: &str) -> Resource {
        Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: singular.into(),
            short_names: vec![short.into()],
            namespaced: true,
        }
    }

    #[test]
    fn a_resource_is_meant_by_each_of_its_names() {
        let (deploy, pods) = (
            resource("apps", "v1", "deployments", "deployment", "deploy", "Deployment"),
            resource("", "v1", "pods", "", "po", "Pod"),
        );
        for (text, form, is_where) in [
            ("deployments", Some(Form::Plural), true),
            ("Deployment", Some(Form::Singular), true),
            ("DEPLOY", Some(Form::Short), true),
            ("deployments.apps", Some(Form::Plural), true),
            ("deploy.v1.apps", Some(Form::Short), true),
            ("deploy.v2.apps", Some(Form::Short), false),
            ("deploy.batch", Some(Form::Short), false),
            ("deploy.v1", Some(Form::Short), false),
            ("pods", None, true),
            ("", None, true),
        ] {
            let spelling = Spelling::of(text);
            assert_eq!((spelling.form(&deploy), spelling.is_where(&deploy)), (form, is_where), "{text}");
        }
        for (text, form, is_where) in [
            ("po.v1", Some(Form::Short), true),
            ("po.v1.", Some(Form::Short), true),
            ("pod", Some(Form::Kind), true),
            ("pods.apps", Some(Form::Plural), false),
            // What has no singular is not meant by no name.
            (".v1", None, true),
        ] {
            let spelling = Spelling::of(text);
            assert_eq!((spelling.form(&pods), spelling.is_where(&pods)), (form, is_where), "{text}");
        }
    }
}
