use super::*;
use model::id::Item;
use placement::plan::Wanted;

const DAY: u64 = 1 << 30;

/// Films of one object each, of 8 KiB on a drive, and what is expected of them, in a fleet.
fn expecting(names: &[&str], of: &[(u32, u64)]) -> Director {
    let mut director = running(names);
    let policy = Policy { versions_kept: 12, ..director.desired().policy };
    director.handle(at(0), Event::Changed(Change::Policy(policy)));
    for (n, (item, _)) in (1..).zip(of) {
        let version = version_of(&format!("film-{n}"), &[n], n.into());
        let version = Version::clone(&version).numbered(Some(*item));
        director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
    }
    forecast(&mut director, None, of);
    settle(&mut director);
    director
}

fn forecast(director: &mut Director, region: Option<&str>, of: &[(u32, u64)]) {
    let wanted = |(item, day): &(u32, u64)| Wanted {
        item: Item(*item),
        day: Bytes(*day),
        peak: BitsPerSecond(1),
    };
    let region = region.map(|region| region.parse().unwrap());
    let regions = BTreeMap::from([(region, of.iter().map(wanted).collect())]);
    director.handle(at(0), Event::Expected(Arc::new(Expected { regions })));
}

fn expected(director: &Director, name: &str, room: u64) -> Vec<(String, u64)> {
    let expected = director.question_of_demand().expected(&id(name), Bytes(room));
    expected.into_iter().map(|of| (of.version.to_string(), of.day_per_mib.0)).collect()
}

/// Of so many bytes a day of a film.
fn film(n: u32, day: u64) -> (String, u64) {
    (format!("film-{n}"), (day << 20) / 8192)
}

#[test]
fn an_appliance_is_told_what_is_expected_of_what_it_holds_best_first() {
    let director = expecting(&["a1"], &[(700, DAY), (800, 3 * DAY), (900, 0), (950, 2 * DAY)]);
    let all = [film(2, 3 * DAY), film(4, 2 * DAY), film(1, DAY)];
    assert_eq!(expected(&director, "a1", u64::MAX), all);
    assert_eq!(expected(&director, "a1", 8193), all[..2], "as many as take so much room");
    assert_eq!(expected(&director, "a1", 0), []);
    assert_eq!(expected(&director, "zz", u64::MAX), [], "nobody knows it");
    let items = director.question_of_demand().expected(&id("a1"), Bytes(1));
    assert_eq!(items[0].files, [800].into());
}

#[test]
fn an_appliance_has_its_part_of_the_demand_of_its_region() {
    // Two of three stand in a site, and both hold the film: two copies are the policy's.
    let mut director = expecting(&["a1", "a2", "b1"], &[(700, 6 * DAY)]);
    let parts = |director: &Director| {
        let of = |name| expected(director, name, u64::MAX).first().map_or(0, |of| of.1);
        [of("a1"), of("a2"), of("b1")].map(|of| of * 60 / film(1, 6 * DAY).1)
    };
    // Thirds of a region of three, in sixtieths, rounded down.
    assert_eq!(parts(&director), [19, 19, 19]);
    let heavy = Appliance::new(id("a2"), "a".parse().unwrap(), Weight::new(3).unwrap());
    director.handle(at(0), Event::Changed(Change::Appliance(heavy)));
    settle(&mut director);
    assert_eq!(parts(&director), [9, 29, 19]);
    let site = |name: &str, cluster: &str| {
        let cluster = Some(cluster.parse().unwrap());
        Site { manifest_cluster: cluster, ..director.desired().sites[name].clone() }
    };
    let sites = [site("a", "north"), site("b", "north")];
    for site in sites {
        director.handle(at(0), Event::Changed(Change::Site(site)));
    }
    settle(&mut director);
    assert_eq!(parts(&director), [0; 3], "nothing is expected of that region yet");
    forecast(&mut director, Some("north"), &[(700, 6 * DAY)]);
    settle(&mut director);
    assert_eq!(parts(&director), [11, 35, 11], "fifths: all three hold it");
}

#[test]
fn files_of_a_rendition_are_those_whose_bytes_count_for_it() {
    let mut director = running(&["a1"]);
    let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=800\n11.mp4\n\
                #EXT-X-STREAM-INF:BANDWIDTH=3000\n16.mp4\n";
    let known = version_of("film-1", &renditions::OBJECTS, 1);
    let entry = Entry { path: "m.m3u8".to_owned(), format: Format::Hls, text: text.into() };
    let version = Version::new(known.files.clone(), vec![entry], 1);
    let version = version.divided(renditions::NUMBERS.to_vec()).numbered(Some(700));
    let items: Vec<Item> = version.items().unwrap().each().map(|(_, item)| item).collect();
    let numbers = |item| (700..712).filter(|file| version.item_of(*file) == Some(item)).collect();
    let wanted: [NumberSet; 2] = [numbers(items[0]), numbers(items[1])];
    assert_eq!(wanted.each_ref().map(NumberSet::len), [7, 5]);
    director.handle(at(0), Event::Changed(Change::Version(Arc::new(version))));
    forecast(&mut director, None, &[(items[0].0, DAY), (items[1].0, 9 * DAY)]);
    settle(&mut director);
    let found = director.question_of_demand().expected(&id("a1"), Bytes(u64::MAX));
    assert_eq!(found.iter().map(|of| &of.files).collect::<Vec<_>>(), [&wanted[1], &wanted[0]]);
}

#[test]
fn before_a_plan_and_a_forecast_nothing_is_expected() {
    let director = expecting(&["a1"], &[(700, DAY)]);
    assert_eq!(expected(&director, "a1", 1), [film(1, DAY)]);
    let mut director = restarted(&director);
    assert_eq!(expected(&director, "a1", 1), []);
    settle(&mut director);
    assert_eq!(expected(&director, "a1", 1), [film(1, DAY)], "by the forecast that is kept");
    director.handle(at(0), Event::Expected(Arc::default()));
    assert_eq!(expected(&director, "a1", 1), []);
}

#[test]
fn what_has_more_files_than_may_be_told_is_left_out() {
    let mut director = expecting(&["a1"], &[(700, DAY)]);
    let many = |n: u32| {
        let mut object = [0; 32];
        object[..4].copy_from_slice(&n.to_be_bytes());
        let file = File { object: ObjectId(object), len: Bytes(1), content_type: "a".into() };
        (format!("{n}.mp4"), file)
    };
    let files = (0..20_000).map(many).collect();
    let long = version_of("film-2", &[2], 2).files.as_ref().clone();
    let long = Version::new(Arc::new(AssetVersion { files, ..long }), Vec::new(), 2);
    let long = Arc::new(long.numbered(Some(1000)));
    director.handle(at(0), Event::Changed(Change::Version(long)));
    forecast(&mut director, None, &[(700, DAY), (1000, u64::MAX >> 1)]);
    settle(&mut director);
    let held: Vec<_> = manifest(&director, "a1").versions.iter().map(|of| of.files.len()).collect();
    assert!(held.contains(&20_000), "{held:?}");
    assert_eq!(expected(&director, "a1", u64::MAX), [film(1, DAY)]);
}
