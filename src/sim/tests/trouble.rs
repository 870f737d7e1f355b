//! Trouble that is asked for: faults, signals, a closed port, rights that are taken back.

use super::*;

#[tokio::test]
async fn faults_meet_the_requests_they_are_meant_for() {
    let sim = sim().await;
    let start = sim.revision();
    for name in ["a", "b", "c", "d"] {
        sim.create("configmaps", map(name, "1")).unwrap();
    }
    let path = format!("{MAPS}?watch=true&resourceVersion={start}");
    let whole = {
        let mut lines = Lines::open(&sim, &path).await;
        let mut whole = Vec::new();
        for _ in 0..4 {
            whole.push(lines.line().await.unwrap());
        }
        whole
    };
    let script = |act: Act| sim.fault(Fault::new(On::watch("configmaps"), act));

    script(Act::cut_in_event(2));
    let mut lines = Lines::open(&sim, &path).await;
    assert_eq!(lines.all().await.len(), 2);
    assert!(lines.broken, "a cut is no clean end");
    assert_eq!(lines.buffer, whole[2][..whole[2].len() / 2], "half of the third line has come");

    let at = whole[0].len() + 10;
    script(Act::tamper(At::Byte(at), How::Nothing, Then::Reset));
    let mut lines = Lines::open(&sim, &path).await;
    while lines.line().await.is_some() {}
    assert!(lines.broken);

    script(Act::end_after_events(3));
    let mut lines = Lines::open(&sim, &path).await;
    assert_eq!(lines.all().await.len(), 3);
    assert!(!lines.broken);

    script(Act::repeat(2));
    let mut lines = Lines::open(&sim, &path).await;
    let mut names = Vec::new();
    for _ in 0..5 {
        names.push(lines.event().await.unwrap().1);
    }
    assert_eq!(names, ["a", "b", "b", "c", "d"]);

    script(Act::swap(1));
    let mut lines = Lines::open(&sim, &path).await;
    let mut names = Vec::new();
    for _ in 0..4 {
        names.push(lines.event().await.unwrap().1);
    }
    assert_eq!(names, ["a", "c", "b", "d"]);

    script(Act::undecodable(1));
    let mut lines = Lines::open(&sim, &path).await;
    lines.line().await.unwrap();
    assert!(serde_json::from_slice::<Value>(&lines.line().await.unwrap()).is_err());
    assert_eq!(lines.event().await.unwrap().1, "c");

    script(Act::oversize(0, 1 << 20));
    let mut lines = Lines::open(&sim, &path).await;
    let line = lines.line().await.unwrap();
    assert!(line.len() >= 1 << 20);
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap()["object"]["metadata"]["name"], "a");

    script(Act::insert(1, "neither JSON nor anything\n"));
    let mut lines = Lines::open(&sim, &path).await;
    lines.line().await.unwrap();
    assert_eq!(lines.line().await.unwrap(), b"neither JSON nor anything\n");

    script(Act::error_event(1, &Refusal::internal("no leader")));
    assert_eq!(Lines::open(&sim, &path).await.all().await.last(), event("ERROR", "", 500).as_ref());

    script(Act::Chop(7));
    let mut lines = Lines::open(&sim, &path).await;
    for line in &whole {
        assert_eq!(lines.line().await.as_ref(), Some(line));
    }

    script(Act::empty());
    assert!(Lines::open(&sim, &path).await.line().await.is_none());

    script(Act::flow_control(5));
    let response = ask(&sim, &path).await;
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"5".parse().unwrap()));
    assert_eq!(response.text().await.unwrap(), "Too many requests, please try again later.\n");

    // The second page only, twice.
    let second = On::list("configmaps").query("continue=");
    sim.fault(Fault::new(second, Act::refuse(&Refusal::not_ready(1))).after(1).times(2));
    let token = get(&sim, &format!("{MAPS}?limit=1")).await.1["metadata"]["continue"].as_str().unwrap().to_owned();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(get(&sim, &format!("{MAPS}?limit=1&continue={token}")).await.0);
    }
    assert_eq!(statuses, [200, 429, 429, 200]);

    sim.fault(Fault::new(On::list("configmaps"), Act::cut_after_bytes(100)).always());
    for _ in 0..2 {
        let mut body = ask(&sim, MAPS).await;
        let mut bytes = 0;
        let end = loop {
            match body.chunk().await {
                Ok(Some(more)) => bytes += more.len(),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert!(end.is_err());
        assert_eq!(bytes, 100);
    }
    sim.heal();
    sim.fault(Fault::new(On::list("configmaps"), Act::end_after_bytes(100)));
    assert_eq!(ask(&sim, MAPS).await.bytes().await.unwrap().len(), 100, "a list that ends as if that were all");
    sim.fault(Fault::new(On::list("*"), Act::Reset));
    assert!(client().get(format!("{}{MAPS}", sim.url())).bearer_auth(TOKEN).send().await.is_err());
    assert_eq!(get(&sim, MAPS).await.0, 200);
}

#[tokio::test]
async fn signals_meet_what_is_open() {
    let sim = sim().await;
    for (signal, broken) in [(Signal::End, false), (Signal::Cut, true), (Signal::Reset, true)] {
        let path = format!("{MAPS}?watch=true&resourceVersion={}", sim.revision());
        let name = format!("{signal:?}").to_lowercase();
        let next = sim.create("configmaps", map(&name, "1")).unwrap().revision;
        let mut lines = Lines::open(&sim, &path).await;
        sim.signal("*", &signal);
        sim.create("configmaps", map(&format!("{name}-later"), "1")).unwrap();
        assert_eq!(lines.event().await, event("ADDED", &name, next), "what happened before comes first");
        assert_eq!(lines.event().await, None, "and what happens later does not come");
        assert_eq!(lines.broken, broken, "{signal:?}");
    }
    let path = format!("{MAPS}?watch=true&resourceVersion={}", sim.revision());
    let mut lines = Lines::open(&sim, &path).await;
    sim.signal("configmaps", &Signal::Error(Refusal::expired(1, 2)));
    assert_eq!(lines.all().await.last(), event("ERROR", "", 410).as_ref());
}

#[tokio::test]
async fn the_port_closes_and_opens() {
    let sim = sim().await;
    let mut lines = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    sim.stop_listening().await;
    assert!(lines.line().await.is_none());
    let refused = client().get(sim.url()).send().await.unwrap_err();
    assert!(refused.is_connect(), "{refused:?}");
    sim.start_listening().await.unwrap();
    assert_eq!(get(&sim, MAPS).await.0, 200);
}

#[tokio::test]
async fn only_those_who_may_get_in() {
    let sim = sim().await;
    let denied = client().get(format!("{}{MAPS}", sim.url())).send().await.unwrap();
    assert_eq!(denied.status(), 401);
    let mut open = Lines::open(&sim, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    sim.revoke(TOKEN);
    assert_eq!(get(&sim, MAPS).await.0, 401);
    let next = sim.create("configmaps", map("a", "1")).unwrap().revision;
    assert_eq!(open.event().await, event("ADDED", "a", next), "an open watch outlives its token");
    sim.admit(TOKEN);
    sim.deny("list", "secrets", None);
    let (status, refusal) = get(&sim, "/api/v1/namespaces/shop/secrets").await;
    let message = "secrets is forbidden: User \"system:serviceaccount:decklog:decklog\" cannot list resource \"secrets\" \
                   in API group \"\" in the namespace \"shop\"";
    assert_eq!((status, refusal["message"].as_str()), (403, Some(message)));
    assert_eq!(refusal["details"], json!({"kind": "secrets"}));
    sim.grant("secrets");
    assert_eq!(get(&sim, "/api/v1/secrets").await.0, 200);
}
