use super::*;

fn skim(input: &[u8]) -> Result<SkimProgress, ReplyError> {
    ReplySkimmer::new(ReplyLimits::default()).skim(input)
}

#[test]
fn a_reply_is_skipped_whole_and_its_kind_told() {
    for (input, kind) in [
        (&b"+OK\r\n"[..], Skimmed::Value),
        (b"-ERR no\r\n", Skimmed::Error),
        (b"!3\r\nERR\r\n", Skimmed::Error),
        (b"$-1\r\n", Skimmed::Null),
        (b"*2\r\n-ERR inside\r\n%1\r\n$1\r\nk\r\n*0\r\n", Skimmed::Value),
        (b">2\r\n+message\r\n+x\r\n", Skimmed::Push),
        (b"|1\r\n+ttl\r\n:1\r\n-ERR no\r\n", Skimmed::Error),
        (b"|1\r\n-a\r\n*0\r\n|0\r\n:1\r\n", Skimmed::Value),
    ] {
        let stream = [input, b"+next\r\n"].concat();
        let expected = SkimProgress::Complete { consumed: input.len(), kind };
        assert_eq!(skim(&stream), Ok(expected), "{}", input.escape_ascii());
    }
}

#[test]
fn bodies_need_not_be_kept() {
    let mut skimmer = ReplySkimmer::new(ReplyLimits::default());
    assert_eq!(skimmer.skim(b"$1000\r\n"), Ok(SkimProgress::Incomplete { consumed: 7 }));
    assert_eq!(skimmer.skim(&[b'x'; 600]), Ok(SkimProgress::Incomplete { consumed: 600 }));
    assert_eq!(
        skimmer.skim(&[[b'x'; 400].as_slice(), b"\r"].concat()),
        Ok(SkimProgress::Incomplete { consumed: 400 })
    );
    assert_eq!(skimmer.skim(b"\r\n"), Ok(SkimProgress::Complete { consumed: 2, kind: Skimmed::Value }));
}

#[test]
fn an_error_stays() {
    let mut skimmer = ReplySkimmer::new(ReplyLimits::default());
    assert_eq!(skimmer.skim(b"?"), Err(ReplyError::UnknownMarker(b'?')));
    assert_eq!(skimmer.skim(b"+OK\r\n"), Err(ReplyError::UnknownMarker(b'?')));
    assert_eq!(skim(b"*1\r\n$1\r\nxyz"), Err(ReplyError::InvalidTerminator));
    assert_eq!(skim(b"*2\r\n*16777215\r\n"), Err(ReplyError::TooManyElements));
}
