use super::*;

#[test]
fn errors_are_kept_newest_first_each_text_once_and_not_too_many() {
    let ledger = Ledger::new(Bytes::ZERO, None, Box::new(|_| {}));
    (0..30).for_each(|i| ledger.note("fill", format!("error {i}")));
    ledger.note("fill", "error 20".to_owned());
    let texts: Vec<String> = ledger.errors().into_iter().map(|noted| noted.text).collect();
    assert_eq!((texts.len(), &*texts[0], &*texts[1]), (ERRORS_MAX, "error 20", "error 29"));
    assert_eq!(texts.iter().filter(|text| *text == "error 20").count(), 1);
}
