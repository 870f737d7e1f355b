//! Writes: what clients of a cluster would write, one object or many.

use super::{Arc, BTreeSet, CRDS, Object, Pattern, Refusal, Row, Served, Sim, Store, Value, objects, server};

impl Sim {
    // --- writes ---

    pub(super) fn write(
        &self,
        verb: &str,
        resource: &str,
        write: impl FnOnce(&mut Store, &Served) -> Result<Arc<Row>, Refusal>,
    ) -> Result<Arc<Row>, Refusal> {
        let mut state = self.shared.lock();
        let served = state.store.resource(resource)?;
        let written = write(&mut state.store, &served);
        let status = match &written {
            Ok(_) if verb == "POST" => 201,
            Ok(_) => 200,
            Err(refusal) => refusal.code,
        };
        state.count(verb, resource, &served.resource.version, "resource", status);
        drop(state);
        self.shared.notify();
        written
    }

    /// Creates an object of this resource (`pods`, `deployments.apps`) in the namespace that its
    /// metadata names, else in `default`.
    ///
    /// # Errors
    /// As the server refuses it: the name is taken or absent, the resource is not served.
    pub fn create(&self, resource: &str, object: impl Into<Object>) -> Result<Arc<Row>, Refusal> {
        self.write("POST", resource, |store, served| store.create(served, object.into()))
    }

    /// Puts a whole new form in the place of an object; with a resourceVersion in it only if that is
    /// the current one. A form that says the same makes no revision, as in Kubernetes.
    ///
    /// # Errors
    /// As the server refuses it: not found, conflict.
    pub fn replace(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        object: impl Into<Object>,
    ) -> Result<Arc<Row>, Refusal> {
        self.write("PUT", resource, |store, served| store.replace(served, namespace, name, object.into()))
    }

    /// Changes an object in place. The closure has the cluster for itself: it must not use it.
    ///
    /// # Errors
    /// As the server refuses it.
    pub fn update(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Row>, Refusal> {
        self.write("PUT", resource, |store, served| {
            let mut value = store.find(served, namespace, name)?.value();
            change(&mut value);
            store.replace(served, namespace, name, value.into())
        })
    }

    /// Applies a JSON merge patch to an object.
    ///
    /// # Errors
    /// As the server refuses it.
    pub fn patch(&self, resource: &str, namespace: &str, name: &str, patch: &Value) -> Result<Arc<Row>, Refusal> {
        self.write("PATCH", resource, |store, served| {
            let mut value = store.find(served, namespace, name)?.value();
            server::merge(&mut value, patch);
            store.replace(served, namespace, name, value.into())
        })
    }

    /// Deletes an object; one with finalizers is only marked as being deleted.
    ///
    /// # Errors
    /// As the server refuses it.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<Arc<Row>, Refusal> {
        self.write("DELETE", resource, |store, served| store.delete(served, namespace, name))
    }

    /// Marks an object as being deleted within so many seconds, as a Pod is while it shuts down; a
    /// later [`Sim::delete`] takes it away.
    ///
    /// # Errors
    /// As the server refuses it.
    pub fn terminate(&self, resource: &str, namespace: &str, name: &str, grace: u32) -> Result<Arc<Row>, Refusal> {
        self.write("DELETE", resource, |store, served| store.terminate(served, namespace, name, grace))
    }

    /// Deletes every object of a resource, each in a revision of its own.
    ///
    /// # Errors
    /// As the server refuses it.
    pub fn delete_all(&self, resource: &str) -> Result<usize, Refusal> {
        let rows = self.objects(resource)?;
        for row in &rows {
            self.delete(resource, &row.namespace, &row.name)?;
        }
        Ok(rows.len())
    }

    /// Deletes these objects (namespace and name) in one revision, as when a lease of etcd runs out.
    ///
    /// # Errors
    /// Where one of them is not found; then none is deleted.
    pub fn expire_together(&self, resource: &str, objects: &[(&str, &str)]) -> Result<u64, Refusal> {
        let mut state = self.shared.lock();
        let served = state.store.resource(resource)?;
        let rows = objects
            .iter()
            .map(|(namespace, name)| state.store.find(&served, namespace, name))
            .collect::<Result<Vec<_>, _>>()?;
        state.store.expire(&rows);
        let revision = state.store.etcd(&served.storage).revision;
        drop(state);
        self.shared.notify();
        Ok(revision)
    }

    /// Creates a namespace.
    ///
    /// # Errors
    /// Where it exists.
    pub fn create_namespace(&self, name: &str) -> Result<Arc<Row>, Refusal> {
        self.create("namespaces", objects::namespace(name))
    }

    /// Deletes a namespace with everything in it, as the namespace controller does.
    ///
    /// # Errors
    /// Where it does not exist.
    pub fn delete_namespace(&self, name: &str) -> Result<Arc<Row>, Refusal> {
        let resources: Vec<String> = {
            let state = self.shared.lock();
            let mut storages = BTreeSet::new();
            let namespaced = state.store.served.iter().filter(|served| served.resource.namespaced);
            namespaced.filter(|s| storages.insert(s.storage.clone())).map(|s| s.resource.full_name()).collect()
        };
        for resource in resources {
            for row in self.objects(&resource)? {
                if *row.namespace == *name {
                    self.delete(&resource, name, &row.name)?;
                }
            }
        }
        self.delete("namespaces", "", name)
    }

    /// Defines a custom resource by a CRD, such as one of [`objects::crd`].
    ///
    /// # Errors
    /// Where it is defined already.
    pub fn define(&self, crd: Value) -> Result<Arc<Row>, Refusal> {
        self.create(CRDS, crd)
    }

    /// Deletes a CRD, its objects first.
    ///
    /// # Errors
    /// Where it is not defined.
    pub fn undefine(&self, name: &str) -> Result<Arc<Row>, Refusal> {
        self.delete(CRDS, "", name)
    }

    /// Serves a custom resource in exactly these versions from now on; its watches end.
    ///
    /// # Errors
    /// Where it is not defined.
    pub fn serve_versions(&self, name: &str, versions: &[&str]) -> Result<Arc<Row>, Refusal> {
        self.update(CRDS, "", name, |crd| {
            crd["spec"]["versions"] = objects::crd_versions(versions);
        })
    }

    /// Creates `count` Pods of about 8 KB in the namespace `bulk`. They are made again each time they
    /// are read, so that a hundred thousand of them need little memory.
    ///
    /// # Errors
    /// Never, as long as Pods are served.
    pub fn bulk_pods(&self, count: usize) -> Result<(), Refusal> {
        let mut state = self.shared.lock();
        let pods = state.store.resource("pods")?;
        let pattern = Pattern::new(&objects::pod_pattern().into(), &pods.head());
        state.store.create_bulk(&pods, "bulk", &Arc::new(pattern), count);
        drop(state);
        self.shared.notify();
        Ok(())
    }

    /// Creates `count` ConfigMaps of about 300 bytes in the namespace `bulk`, in the same way.
    ///
    /// # Errors
    /// Never, as long as ConfigMaps are served.
    pub fn bulk_config_maps(&self, count: usize) -> Result<(), Refusal> {
        self.bulk_config_maps_in("bulk", count)
    }

    /// As [`Sim::bulk_config_maps`], in this namespace.
    ///
    /// # Errors
    /// Never, as long as ConfigMaps are served.
    pub fn bulk_config_maps_in(&self, namespace: &str, count: usize) -> Result<(), Refusal> {
        let mut state = self.shared.lock();
        let maps = state.store.resource("configmaps")?;
        let pattern = Pattern::new(&objects::config_map_pattern(namespace).into(), &maps.head());
        state.store.create_bulk(&maps, namespace, &Arc::new(pattern), count);
        drop(state);
        self.shared.notify();
        Ok(())
    }

    /// Gives `count` of those Pods a new form, each in a revision of its own, round and round.
    pub fn touch_bulk(&self, count: usize) {
        self.touch_bulk_of("pods", count, 1);
    }

    /// Gives `count` of those ConfigMaps a new form, each in a revision of its own, now here and now there: all of them
    /// have had their turn before one has a second.
    pub fn touch_bulk_config_maps(&self, count: usize) {
        // A prime that divides none of the numbers of objects that somebody asks for.
        self.touch_bulk_of("configmaps", count, 7_919);
    }

    pub(super) fn touch_bulk_of(&self, storage: &str, count: usize, step: usize) {
        self.shared.lock().store.touch_bulk(storage, count, step);
        self.shared.notify();
    }
}
