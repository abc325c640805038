//! Lines of both formats, and what is refused.

use super::*;

#[test]
fn lines_of_msr_cambridge_are_read() {
    let text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
                128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                128166372016382155,usr,1,Write,1317441536,8192,1963\n";
    let requests = read_trace(TraceFormat::Msr, text.as_bytes()).expect("reads");
    let first = Request { arrival_ns: 0, offset: 7_014_609_920, bytes: 24576, is_write: false };
    assert_eq!(requests[0], first);
    assert_eq!(requests[1].arrival_ns, 1_332_052_600);
    assert_eq!((requests[1].offset, requests[1].is_write), (MSR_DISK_BYTES + 1_317_441_536, true));
}

#[test]
fn queued_transfers_of_blkparse_are_read() {
    let text = "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
                \x20 8,0    3        2     0.000001829   697  Q  WS 223490 + 8 [kjournald]\n\
                \x20 8,0    3        4     1.500000000   697  Q   R 16 + 256 [cat]\n\
                \x20 8,0    3        5     1.600000000   697  C   R 16 + 256 [0]\n\
                CPU0 (sda):\n Reads Queued:           1,      128KiB\n";
    let requests = read_trace(TraceFormat::Blkparse, text.as_bytes()).expect("reads");
    let expected = [
        Request { arrival_ns: 0, offset: 223_490 * 512, bytes: 4096, is_write: true },
        Request { arrival_ns: 1_499_998_171, offset: 8192, bytes: 131_072, is_write: false },
    ];
    assert_eq!(requests, expected);
}

#[test]
fn lines_that_do_not_parse_and_traces_out_of_order_are_refused_with_their_line() {
    for (format, text, word) in [
        (TraceFormat::Msr, "1,h,0,Read,0,512,1\n2,h,0,Peek,0,512,1\n", "line 2"),
        (TraceFormat::Msr, "1,h,0,Read,0\n", "fewer than 7"),
        (TraceFormat::Msr, "1,h,0,Read,-5,512,1\n", "offset"),
        (TraceFormat::Msr, "990000000,h,0,Read,0,512,1\n1,h,0,Read,0,512,1\n", "sort the trace"),
        (TraceFormat::Msr, "18446744073709551615,h,0,Read,0,512,1\n", "timestamp"),
        (TraceFormat::Msr, "", "no request"),
        (TraceFormat::Blkparse, "8,0 3 2 0.0 697 Q W 223490 8\n", "'+'"),
        (TraceFormat::Blkparse, "8,0 3 2 now 697 Q W 223490 + 8\n", "time"),
        (TraceFormat::Blkparse, "some text\n", "no request"),
    ] {
        let error = read_trace(format, text.as_bytes()).expect_err("refused");
        assert!(error.message().contains(word), "{text:?}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn completion_stamps_that_are_slightly_out_of_order_count_as_simultaneous() {
    let text = "1000000,h,0,Read,0,512,1\n3000000,h,0,Read,0,512,1\n2000000,h,0,Read,0,512,1\n";
    let requests = read_trace(TraceFormat::Msr, text.as_bytes()).expect("reads");
    assert_eq!(requests[2].arrival_ns, requests[1].arrival_ns);
}
