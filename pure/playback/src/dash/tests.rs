use super::*;
use proptest::prelude::*;

const LIST: &str = include_str!("../../fixtures/ffmpeg/manifest.mpd");
const TIMELINE: &str = include_str!("../../fixtures/segments/manifest.mpd");

#[test]
fn a_single_file_mpd_of_ffmpeg_refers_to_one_file_per_rendition() {
    check_files(
        "dash/manifest.mpd",
        LIST,
        &["dash/r0.mp4", "dash/r1.mp4", "dash/r2.mp4", "dash/r3.mp4"],
    );
}

#[test]
fn a_segmented_mpd_of_ffmpeg_refers_to_every_segment() {
    let files = [
        "chunk-stream0-00001.m4s",
        "chunk-stream0-00002.m4s",
        "chunk-stream0-00003.m4s",
        "init-stream0.m4s",
    ];
    check_files("manifest.mpd", TIMELINE, &files);
}

#[test]
fn an_mpd_of_ffmpeg_is_rewritten_for_three_pathways() {
    let text = rewrite("dash/manifest.mpd", LIST, &[], &PATHWAYS, STEERING).unwrap();
    insta::assert_snapshot!("three_pathways", text);
}

#[test]
fn each_representation_has_the_bases_of_those_that_hold_it() {
    let references = references("dash/manifest.mpd", LIST).unwrap();
    let files: Vec<&str> = references.iter().map(|reference| reference.file.as_str()).collect();
    assert_eq!(files, ["dash/r0.mp4", "dash/r1.mp4", "dash/r2.mp4", "dash/r3.mp4"]);
    assert!(references.iter().all(|reference| reference.bitrate.is_some()));
    let text = rewrite("dash/manifest.mpd", LIST, &[1, 1, 2, 1], &APART, STEERING).unwrap();
    insta::assert_snapshot!("apart", text);
}

#[test]
fn base_urls_stand_where_the_standard_has_them_and_are_not_multiplied() {
    let apart = |inside: &str| {
        let text = wrapped(inside).replace("<Period", "<BaseURL>m/</BaseURL><Period");
        let text = rewrite("m.mpd", &text, &[2], &APART[..1], "https://c").unwrap();
        assert_eq!(text.matches("<BaseURL").count(), 1, "{text}");
        let url = text.split_once("<BaseURL serviceLocation=\"near\">https://far/t/T/f/").unwrap();
        let url = url.1.split_once("</BaseURL>").unwrap().0.to_owned();
        (text, url)
    };
    let (text, url) = apart("<Label/> <BaseURL>v.mp4</BaseURL><BaseURL>w.mp4</BaseURL>");
    assert!(url == "m/v.mp4" && text.contains("<Label/><BaseURL"), "{text}");
    let (text, url) = apart("<Label/>\n <SegmentTemplate media='$Number$' duration='4'/>");
    assert!(url == "m/" && text.contains("<Label/><BaseURL"), "{text}");
    assert!(text.contains("</BaseURL>\n <SegmentTemplate"), "{text}");
}

#[test]
fn a_representation_without_anything_inside_gets_a_base_url() {
    let text = "<MPD><Period><AdaptationSet><SegmentTemplate media='$RepresentationID$'/>\
        <Representation id='v'/></AdaptationSet></Period></MPD>";
    let text = rewrite("d/m.mpd", text, &[1], &APART[..1], "https://c").unwrap();
    let wanted = "<Representation id='v'><BaseURL serviceLocation=\"near\">\
        https://near/t/T/f/d/</BaseURL></Representation>";
    assert!(text.contains(wanted), "{text}");
    assert!(parse(&text.replace("ContentSteering", "x")).is_ok(), "{text}");
}

#[test]
fn all_else_stays_byte_for_byte() {
    let text = rewrite("dash/manifest.mpd", LIST, &[], &PATHWAYS, STEERING).unwrap();
    let added =
        |line: &&str| !line.contains("serviceLocation=") && !line.contains("ContentSteering");
    let kept: Vec<&str> = text.split_inclusive('\n').filter(added).collect();
    assert_eq!(kept.concat(), LIST);
}

#[test]
fn a_base_url_of_the_mpd_is_resolved_under_ours() {
    let text = "<m:MPD xmlns:m='urn:mpeg:dash:schema:mpd:2011'><!-- x -->\
        <m:BaseURL> ../v&#x3b;1/a%20b/ </m:BaseURL><m:BaseURL>other/</m:BaseURL>\
        <m:Period><m:BaseURL>p/</m:BaseURL><m:AdaptationSet><m:Representation>\
        <m:BaseURL>x.mp4</m:BaseURL></m:Representation></m:AdaptationSet></m:Period></m:MPD>";
    check_files("dash/m.mpd", text, &["v;1/a b/p/x.mp4"]);
    let text = rewrite("dash/m.mpd", text, &[], &PATHWAYS[..1], "https://c/?a&b").unwrap();
    insta::assert_snapshot!("prefixed", text);
}

#[test]
fn a_base_url_right_behind_the_start_tag_gives_way_too() {
    let inside = "<Period><AdaptationSet><Representation/></AdaptationSet></Period>";
    let text = format!("<MPD><BaseURL>a/</BaseURL><BaseURL>b/</BaseURL>{inside}</MPD>");
    let text = rewrite("m.mpd", &text, &[], &PATHWAYS[..1], STEERING).unwrap();
    let base = "https://a1.example:8443/t/TOKEN/film-1/a/";
    assert!(text.starts_with("<MPD><BaseURL serviceLocation=\"a1\">"), "{text}");
    assert_eq!((text.matches(base).count(), text.matches("b/").count()), (1, 0), "{text}");
    assert!(text.ends_with(&format!("</ContentSteering>{inside}</MPD>")), "{text}");
}

#[test]
fn every_way_to_name_a_file_is_followed() {
    mpd("<BaseURL>v.mp4</BaseURL><SegmentBase indexRange='0-9'/>", &["v.mp4"]);
    mpd(
        "<BaseURL>v.mp4</BaseURL><SegmentBase><Initialization sourceURL='i.mp4'/>\
         <RepresentationIndex sourceURL='x.sidx'/></SegmentBase>",
        &["i.mp4", "v.mp4", "x.sidx"],
    );
    mpd(
        "<SegmentList><Initialization sourceURL='i'/><SegmentURL media='1' index='1x'/>\
         <SegmentURL media='2'/></SegmentList>",
        &["1", "1x", "2", "i"],
    );
    mpd(
        "<SegmentTemplate media='$RepresentationID$_$Bandwidth$_$$_$Number%03d$' duration='4' \
         startNumber='9' initialization='$RepresentationID$'/>",
        &["r", "r_77_$_009", "r_77_$_010"],
    );
    mpd("<SegmentTemplate media='$Number$' duration='4' endNumber='3'/>", &["1", "2", "3"]);
    mpd(
        "<SegmentTemplate timescale='10' media='$Time$'><SegmentTimeline><S t='5' d='20' r='1'/>\
         <S d='10'/><S t='60' d='15' r='-1'/></SegmentTimeline></SegmentTemplate>",
        &["25", "45", "5", "60", "75"],
    );
    mpd(
        "<SegmentTemplate media='$Time$'><SegmentTimeline><S t='0' d='2' r='-1'/><S t='6' d='9'/>\
         </SegmentTimeline></SegmentTemplate>",
        &["0", "2", "4", "6"],
    );
}

#[test]
fn durations_read_as_the_standard_writes_them() {
    let check = |text, millis: Option<u64>| {
        assert_eq!(template::duration(text), millis.map(Nanos::millis), "{text}");
    };
    check("PT6.0S", Some(6000));
    check("P0Y0M0DT0H3M1.63S", Some(181_630));
    check("P1DT2H", Some(93_600_000));
    check("PT", Some(0));
    for bad in ["", "P1Y", "P1YT0S", "PT1X", "6", "PT-1S", "PT99999999999999H"] {
        check(bad, None);
    }
}

#[test]
fn what_cannot_be_played_is_refused_with_its_reason() {
    use PlaylistError::*;
    let with = |attributes: &str, inside: &str| {
        format!(
            "<MPD {attributes}>{inside}<Period><AdaptationSet><Representation>\
            <BaseURL>v.mp4</BaseURL></Representation></AdaptationSet></Period></MPD>"
        )
    };
    assert!(check("m.mpd", &with("type='static'", "")).is_ok());
    refused(&with("type='dynamic'", ""), NotStatic("dynamic".to_owned()));
    refused("<MPD/>", NotMpd);
    refused("<SmoothStreamingMedia/>", NotMpd);
    refused(&with("", "<ContentSteering>x</ContentSteering>"), Steered);
    refused(&with("", "<Location>https://x/</Location>"), Elsewhere("Location".to_owned()));
    refused(
        &with("", "<Period xlink:href='https://x/'/>"),
        Elsewhere("Period xlink:href".to_owned()),
    );
    refused(&with("", "<BaseURL>https://x/</BaseURL>"), Outside("https://x/".to_owned()));
    refused(&with("", "<BaseURL>../</BaseURL>"), Outside("../".to_owned()));
    for text in [
        "",
        "<MPD>",
        "<MPD></X>",
        "<MPD a=1 a=2/>",
        "<MPD/><MPD/>",
        "&x;",
        "<MPD>&x;</MPD>",
        "<!DOCTYPE MPD><MPD/>",
        &"<a>".repeat(100),
    ] {
        assert!(
            matches!(check("m.mpd", text), Err(Xml { .. })),
            "{text}: {:?}",
            check("m.mpd", text)
        );
    }
}

#[test]
fn a_representation_that_names_no_file_is_refused() {
    let text = "<MPD><Period><AdaptationSet><Representation/></AdaptationSet></Period></MPD>";
    assert_eq!(check("d/m.mpd", text), Err(PlaylistError::NotAFile("d/".to_owned())));
}

#[test]
fn templates_cannot_make_endless_lists() {
    for inside in [
        "<SegmentTemplate media='$Number$' duration='1' timescale='1000000000'/>",
        "<SegmentTemplate media='$Time$'><SegmentTimeline><S d='1' r='99999999999'/>\
         </SegmentTimeline></SegmentTemplate>",
    ] {
        let refused = check("m.mpd", &wrapped(inside));
        assert_eq!(refused, Err(PlaylistError::TooManyFiles), "{inside}");
    }
}

#[test]
fn byte_ranges_are_told_with_their_files_and_places() {
    let parts = |inside: &str| {
        let checked = check("d/m.mpd", &wrapped(inside)).map(|mpd| mpd.parts);
        checked.map(|parts| parts.into_iter().map(|p| (p.file, p.end.0)).collect::<Vec<_>>())
    };
    let of = |file: &str, end| (format!("d/{file}"), end);
    let base = "<BaseURL>v.mp4</BaseURL>";
    let init = "<Initialization range='0-99'/>";
    assert_eq!(
        parts(&format!("{base}<SegmentBase indexRange='100-199'>{init}</SegmentBase>")),
        Ok(vec![of("v.mp4", 100), of("v.mp4", 200)])
    );
    let list = "<SegmentURL mediaRange='5-9'/><SegmentURL media='x' indexRange='1-2'/>";
    assert_eq!(
        parts(&format!("{base}<SegmentList>{list}</SegmentList>")),
        Ok(vec![of("v.mp4", 10), of("x", 3)])
    );
    for bad in ["9-5", "5", "-5", "5-", "a-b", "0-18446744073709551615", "", "1-2,3-4"] {
        let refused = parts(&format!("{base}<SegmentBase indexRange='{bad}'/>"));
        assert_eq!(refused, Err(PlaylistError::Range(bad.to_owned())));
    }
    for bad in ["0", "-1", "much"] {
        let text = wrapped(base).replace("77", bad);
        assert_eq!(check("m.mpd", &text), Err(PlaylistError::Bandwidth(bad.to_owned())));
    }
}

#[test]
fn a_small_text_cannot_make_much_work() {
    let template = "<SegmentTemplate media='x' duration='1' timescale='13000'/>";
    let again = format!("{template}</Representation><Representation>").repeat(3);
    assert_eq!(check("m.mpd", &wrapped(&again)), Err(PlaylistError::TooManyFiles));
    let many = "<BaseURL>v</BaseURL></Representation><Representation>".repeat(REPRESENTATIONS_MAX);
    let refused = check("m.mpd", &wrapped(&(many + "<BaseURL>v</BaseURL>")));
    assert_eq!(refused, Err(PlaylistError::TooManyRepresentations));
    let long = format!("<SegmentTemplate media='x?{}' duration='1'/>", "y".repeat(5000));
    assert!(matches!(check("m.mpd", &wrapped(&long)), Err(PlaylistError::NotAFile(_))));
    let attributes: String = (0..65).map(|i| format!(" a{i}=''")).collect();
    let refused = check("m.mpd", &wrapped(&format!("<x{attributes}/>")));
    assert!(matches!(refused, Err(PlaylistError::Xml { .. })), "{refused:?}");
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        drop(check("a/b.mpd", &text));
        drop(rewrite("a/b.mpd", &text, &[], &PATHWAYS, STEERING));
    }

    #[test]
    fn arbitrary_elements_never_panic(
        inside in "(<(BaseURL|/BaseURL|S|SegmentTemplate|SegmentList|SegmentURL|x:y|Location)\
            ( (media|t|d|r|duration|timescale|startNumber)='[$%a-zA-Z0-9./-]{0,9}'){0,3}/?>\
            |[a-z&;.]{0,5}){0,9}"
    ) {
        let text = wrapped(&inside);
        let checked = check("a/b.mpd", &text);
        if checked.is_ok() {
            prop_assert!(rewrite("a/b.mpd", &text, &[], &PATHWAYS, STEERING).is_ok());
        }
    }

    #[test]
    fn a_damaged_mpd_never_panics(at in 0..LIST.len(), byte in "[<>/&;'\"= a-z]") {
        let mut text = LIST.to_owned();
        text.replace_range(at..=at, &byte);
        drop(check("a/b.mpd", &text));
        drop(rewrite("a/b.mpd", &text, &[], &PATHWAYS, STEERING));
    }
}

/// One representation of 10 s with `inside` and a base URL only if that has one.
fn wrapped(inside: &str) -> String {
    format!(
        "<MPD mediaPresentationDuration='PT10S'><Period><AdaptationSet>\
         <Representation id='r' bandwidth='77'>{inside}</Representation>\
         </AdaptationSet></Period></MPD>"
    )
}

fn mpd(inside: &str, files: &[&str]) {
    check_files("m.mpd", &wrapped(inside), files);
}

fn check_files(path: &str, text: &str, wanted: &[&str]) {
    let files = check(path, text).unwrap().files;
    assert_eq!(files.iter().map(String::as_str).collect::<Vec<_>>(), wanted, "{text}");
}

fn refused(text: &str, error: PlaylistError) {
    assert_eq!(check("m.mpd", text), Err(error), "{text}");
}

const STEERING: &str = "https://control.example/steer/v1/session";
const PATHWAYS: [Pathway<'_>; 3] = [
    Pathway { id: "a1", base: "https://a1.example:8443/t/TOKEN/film-1/", renditions: &[] },
    Pathway { id: "a2", base: "https://a2.example:8443/t/TOKEN/film-1/", renditions: &[] },
    Pathway { id: "b.3", base: "http://127.0.0.4:8480/t/TOKEN/film-1/", renditions: &[] },
];

#[test]
fn the_peak_is_that_of_the_highest_representation() {
    let set = |rates: [&str; 2]| {
        let one = |rate| format!("<Representation id=\"{rate}\" bandwidth=\"{rate}\"/>");
        format!("<AdaptationSet>{}</AdaptationSet>", rates.map(one).concat())
    };
    let sets = [set(["96000", "x"]), set(["700000", "3200000"])].concat();
    let text = format!("<MPD type=\"static\"><Period>{sets}</Period></MPD>");
    assert_eq!(peak(&text), Some(BitsPerSecond(3_200_000)));
    assert_eq!(peak("<MPD type=\"static\"><Period/></MPD>"), None);
}

const NEAR: &str = "https://near/t/T/f/";
const FAR: &str = "https://far/t/T/f/";
/// The near appliance lacks the second rendition.
const APART: [Pathway<'_>; 2] = [
    Pathway { id: "near", base: NEAR, renditions: &[NEAR, FAR] },
    Pathway { id: "far", base: FAR, renditions: &[FAR, FAR] },
];
