use super::*;
use crate::front::{Grant, Sealed};
use model::id::AssetId;
use model::topology::Prefix;
use proptest::prelude::*;
use std::net::IpAddr;

#[test]
fn a_new_version_is_played_only_when_it_has_arrived() {
    let mut director = running(&["a1", "b1"]);
    put_version(&mut director, "film-1", &[1], 1);
    hold(&mut director, "a1", &[1]);
    assert_eq!(played(&director), ("film-1".to_owned(), vec!["a1".to_owned(), "b1".to_owned()]));
    put_version(&mut director, "film-2", &[2], 2);
    assert_eq!(played(&director).0, "film-1");
    hold(&mut director, "b1", &[2]);
    assert_eq!(played(&director).0, "film-2");
    // And back: the older one is made current again.
    put_version(&mut director, "film-1", &[1], 3);
    assert_eq!(played(&director).0, "film-1");
}

#[test]
fn an_asset_with_one_version_is_known_by_that_whatever_comes_and_goes() {
    let mut director = running(&["a1", "b1"]);
    let check = |director: &Director, alone: Option<&str>| {
        let snapshot = director.snapshot();
        let known = snapshot.alone.get("film");
        assert_eq!(known.map(|of| of.version.id().as_str()), alone);
        let Some(known) = known else { return };
        assert!(Arc::ptr_eq(
            &known.version,
            &snapshot.catalog.versions(&"film".parse().unwrap())[0]
        ));
        assert_eq!(snapshot.view.versions.get(known.version.id()), Some(&known.number));
        assert_eq!(known.hash, known.version.id_hash());
        assert_eq!(known.is_always_open, known.version.window == Window::default());
    };
    let goes = |director: &mut Director, name: &str| {
        let gone = Change::Superseded([name.parse().unwrap()].into());
        director.handle(at(0), Event::Changed(gone));
        settle(director);
    };
    check(&director, None);
    put_version(&mut director, "film-1", &[1], 1);
    check(&director, Some("film-1"));
    put_version(&mut director, "film-2", &[2], 2);
    check(&director, None);
    goes(&mut director, "film-1");
    check(&director, Some("film-2"));
    // Its objects are others, and so is its number.
    put_version(&mut director, "film-2", &[3], 3);
    check(&director, Some("film-2"));
    hold(&mut director, "a1", &[3]);
    assert_eq!(played(&director), ("film-2".to_owned(), vec!["a1".to_owned(), "b1".to_owned()]));
    let window = Window { from: Some(UnixSeconds(7)), until: None };
    let later = Version::clone(&version_of("film-2", &[3], 3)).shown(window);
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(later))));
    check(&director, Some("film-2"));
    assert_eq!(refusal_at(&director, UnixSeconds(6)), Some(Unplayable::NotShown));
    assert_eq!(refusal_at(&director, UnixSeconds(7)), None);
    goes(&mut director, "film-2");
    check(&director, None);
    assert_eq!(refusal(&director), Some(Unplayable::UnknownAsset));
}

#[test]
fn what_cannot_be_played_says_why() {
    let session = session();
    let player = Player { client: "10.0.0.1/32".parse().unwrap(), session: &session, plain: false };
    let choose = |director: &Director, asset: &str| {
        let asset: AssetId = asset.parse().unwrap();
        director.snapshot().choose(&asset, &player, director.now_unix, &STEERING).map(|_| ())
    };
    let mut director = fleet(&["a1"]);
    settle(&mut director);
    put_version(&mut director, "film-1", &[1], 1);
    assert_eq!(choose(&director, "other"), Err(Unplayable::UnknownAsset));
    assert_eq!(choose(&director, "film"), Err(Unplayable::NoAppliance));
    director.report(at(0), &id("a1"), &report(1)).unwrap();
    assert_eq!(choose(&director, "film"), Ok(()));
}

#[test]
fn a_lost_appliance_leaves_the_list_and_the_last_list_stands_when_all_are_lost() {
    let mut director = running(&["a1", "a2", "b1"]);
    put_version(&mut director, "film-1", &[1], 1);
    for name in ["a1", "a2", "b1"] {
        hold(&mut director, name, &[1]);
    }
    let ticket = ticket(&["b1", "a1", "a2"]);
    let order = |director: &Director| {
        let list = director.snapshot().steer(&ticket, &STEERING);
        list.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(order(&director)[2], "b1", "the client's own site comes first");
    let lost = order(&director)[0].clone();
    for (ms, name) in [(1000, "a1"), (1000, "a2"), (1000, "b1")] {
        if name != lost {
            let inventory = Delta { from: 1, to: 1, ..Delta::default() };
            director.report(at(ms), &id(name), &Report { inventory, ..report(90) }).unwrap();
        }
    }
    director.handle(at(1501), Event::Tick(UnixSeconds(1)));
    assert_eq!(order(&director).len(), 2);
    assert!(!order(&director).contains(&lost));
    director.handle(at(9999), Event::Tick(UnixSeconds(9)));
    assert_eq!(order(&director), ["b1", "a1", "a2"]);
}

#[test]
fn a_range_says_where_a_client_is_and_not_who() {
    let director = running(&["a1"]);
    let range = |client: &str| {
        let client: IpAddr = client.parse().unwrap();
        director.snapshot().client_range(client).to_string()
    };
    assert_eq!(range("10.1.2.3"), "10.1.2.0/24");
    assert_eq!(range("::ffff:10.1.2.3"), "10.1.2.0/24");
    assert_eq!(range("192.0.2.77"), "192.0.2.0/24");
    assert_eq!(range("2001:db8:1:2::3"), "2001:db8:1::/48");
}

#[test]
fn a_change_of_who_may_play_is_seen_at_once_and_moves_no_file() {
    let mut director = running(&["a1"]);
    put_version(&mut director, "film-1", &[1], 1);
    let (before, placements) = (generations(&director), director.counters().placements);
    let film: AssetId = "film".parse().unwrap();
    let mut say = |change| director.handle(at(0), Event::Changed(Change::Playbacks(change)));
    say(PlaybacksChange::Public(film.clone()));
    let (until, now) = (UnixSeconds(2000), UnixSeconds(1000));
    say(PlaybacksChange::Revoked { session: session(), until, now });
    let playbacks = director.snapshot().playbacks.clone();
    assert!(playbacks.public().contains(&film));
    assert_eq!(playbacks.check(&session(), until, now), Err(Refused::Revoked));
    assert_eq!(director.counters().placements, placements);
    assert_eq!(director.poll(), None, "nothing is to be stored");
    assert_eq!(generations(&director), before);
    put_version(&mut director, "film-2", &[1, 2], 2);
    assert_eq!(director.snapshot().playbacks, playbacks, "other changes leave it");
}

#[test]
fn a_public_asset_needs_no_grant_and_uses_a_good_one() {
    let mut director = running(&["a1"]);
    let name = |asset: &str| -> AssetId { asset.parse().unwrap() };
    let grant = |asset, expires| {
        let expires = UnixSeconds(expires);
        Grant { session: session(), expires, asset: name(asset), client: None }
    };
    let public = |change: fn(AssetId) -> PlaybacksChange| {
        Event::Changed(Change::Playbacks(change(name("film"))))
    };
    let admit = |director: &Director, asset, grant| {
        director.snapshot().admit(&name(asset), grant, UnixSeconds(1000))
    };
    director.handle(at(0), public(PlaybacksChange::Public));
    assert_eq!(
        admit(&director, "film", Err(Refused::Missing)),
        Err(Refused::Missing),
        "there is no such asset"
    );
    put_version(&mut director, "film-1", &[1], 1);
    let good = grant("film", 1001);
    assert_eq!(admit(&director, "film", Ok(good.clone())), Ok(Some(good)));
    for bad in [Err(Refused::Missing), Err(Refused::Unknown), Ok(grant("film", 1))] {
        assert_eq!(admit(&director, "film", bad.clone()), Ok(None));
        assert!(admit(&director, "other", bad).is_err(), "and no other asset is open");
    }
    director.handle(at(0), public(PlaybacksChange::Closed));
    assert_eq!(admit(&director, "film", Err(Refused::Missing)), Err(Refused::Missing));
}

#[test]
fn a_version_is_paced_by_the_highest_peak_of_its_entries() {
    let hls = |peak| format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH={peak}\nv.m3u8\n");
    let mpd = |peak| {
        let set = format!("<AdaptationSet><Representation bandwidth=\"{peak}\"/></AdaptationSet>");
        format!("<MPD type=\"static\"><Period>{set}</Period></MPD>")
    };
    let pace = |entries: &[(Format, String)], given| {
        let files = AssetVersion {
            id: "film-1".parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec![],
            modified: UnixSeconds(1),
            pace: given,
            files: BTreeMap::new(),
        };
        let entry = |(format, text): &(Format, String)| Entry {
            path: "m".to_owned(),
            format: *format,
            text: text.as_str().into(),
        };
        let entries = entries.iter().map(entry).collect();
        Version::new(Arc::new(files), entries, 1).files.pace.map(|pace| pace.0)
    };
    let both = [(Format::Hls, hls(5_000_000)), (Format::Dash, mpd(6_000_000))];
    assert_eq!(pace(&both, None), Some(18_000_000));
    assert_eq!(pace(&[(Format::Hls, hls(300_000))], None), Some(8_000_000), "the least");
    assert_eq!(pace(&both, Some(BitsPerSecond(1))), Some(1), "what was given stays");
    assert_eq!(pace(&[], None), None);
}

proptest! {
    #[test]
    fn grants_and_tickets_survive_their_urls(
        random: [u8; 12], v4: [u8; 4], v6: [u8; 16], len in 0_u8..=32, plain: bool,
        count in 1_usize..5
    ) {
        for address in [IpAddr::from(v4), IpAddr::from(v6)] {
            let (session, expires) = (Session::of_random(random), UnixSeconds(7));
            let client = Prefix::new(address, len).unwrap();
            let ticket = Ticket {
                session,
                expires,
                version: "film-0123.x_y".parse().unwrap(),
                client,
                plain,
                pathways: (0..count).map(|i| id(&format!("a-{i}.b"))).collect(),
                parts: [(id("a-0.b"), vec![part("a-0.b", 1), part("c", 2), part("d.1", 0x8000)])]
                    .into(),
            };
            let fields = ticket.fields();
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.~:".contains(&b);
            prop_assert!(fields.bytes().all(allowed));
            prop_assert_eq!(Ticket::parse(session, expires, &fields), Some(ticket));
            let asset: AssetId = "film.x_y".parse().unwrap();
            let grant = Grant { session, expires, asset, client: plain.then_some(client) };
            let fields = grant.fields();
            prop_assert!(fields.bytes().all(allowed));
            prop_assert_eq!(Grant::parse(session, expires, &fields), Some(grant));
        }
    }

    #[test]
    fn an_arbitrary_payload_never_panics(payload in ".{0,60}|[a-z0-9.~:-]{0,60}") {
        drop(Ticket::parse(session(), UnixSeconds(1), &payload));
        drop(Grant::parse(session(), UnixSeconds(1), &payload));
    }
}
