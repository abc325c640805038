use super::*;

fn text(body: &str) -> Vec<u8> {
    let mut reply = Vec::new();
    ReplyWriter::new(&mut reply, Version::Resp2).verbatim(*b"txt", body.as_bytes());
    reply
}

#[test]
fn who_kills_is_told_how_many_at_all_shards() {
    let numbers = |own: &[u8], others: &[&[u8]]| {
        merge((Merge::Numbers, &OwnedArgs::default()), own, others, Version::Resp2)
    };
    assert_eq!(numbers(b":1\r\n", &[b":2\r\n", b":0\r\n"]), b":3\r\n");
    let none: &[u8] = b"-ERR No such client\r\n";
    assert_eq!(numbers(none, &[b"+OK\r\n"]), b"+OK\r\n");
    assert_eq!(numbers(none, &[none]), none);
}

#[test]
fn lists_of_all_shards_follow_each_other() {
    let merged =
        merge((Merge::Texts, &OwnedArgs::default()), &text("id=1\n"), &[&text("id=2\n")], Version::Resp2);
    assert_eq!(text_of(&merged), Some("id=1\nid=2\n"));
}
