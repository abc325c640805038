//! Commands of Redis and Valkey that are not here. Rules may name them, so that users and files of users that were
//! written for those are taken as they are: such a rule is kept and shown, and allows nothing.

use crate::acl::has_spaces;
use crate::table;

/// Whether the name, or `NAME|FIRST-ARGUMENT` of one that has no subcommands, is such a command's.
pub(crate) fn is_elsewhere(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let Ok(name) = std::str::from_utf8(&name) else { return false };
    if COMMANDS.binary_search(&name).is_ok() {
        return true;
    }
    let Some((command, argument)) = name.split_once('|').filter(|_| table::find(name.as_bytes()).is_none())
    else {
        return false;
    };
    // There DEBUG has no subcommands, but first arguments.
    let takes_any = command == "debug" || COMMANDS.binary_search(&command).is_ok() && !is_container(command);
    takes_any && !argument.is_empty() && !argument.contains('|') && !has_spaces(argument.as_bytes())
}

fn is_container(command: &str) -> bool {
    let first = COMMANDS.partition_point(|other| *other <= command);
    let next = COMMANDS.get(first).and_then(|other| other.strip_prefix(command));
    next.is_some_and(|rest| rest.starts_with('|'))
}

/// In order, as of Redis 8.2 and Valkey 8.1.
#[rustfmt::skip]
static COMMANDS: [&str; 260] = [
    "asking", "bgrewriteaof", "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax",
    "bzpopmin", "client|capa", "client|import-source", "cluster", "cluster|addslots", "cluster|addslotsrange",
    "cluster|bumpepoch", "cluster|count-failure-reports", "cluster|countkeysinslot", "cluster|delslots",
    "cluster|delslotsrange", "cluster|failover", "cluster|flushslots", "cluster|forget",
    "cluster|getkeysinslot", "cluster|help", "cluster|info", "cluster|keyslot", "cluster|links",
    "cluster|meet", "cluster|migration", "cluster|myid", "cluster|myshardid", "cluster|nodes",
    "cluster|replicas", "cluster|replicate", "cluster|reset", "cluster|saveconfig",
    "cluster|set-config-epoch", "cluster|setslot", "cluster|shards", "cluster|slaves", "cluster|slot-stats",
    "cluster|slots", "commandlog", "commandlog|get", "commandlog|help", "commandlog|len", "commandlog|reset",
    "eval", "eval_ro", "evalsha", "evalsha_ro", "failover", "fcall", "fcall_ro", "function|delete",
    "function|dump", "function|kill", "function|load", "function|restore", "function|stats", "geoadd",
    "geodist", "geohash", "geopos", "georadius", "georadius_ro", "georadiusbymember", "georadiusbymember_ro",
    "geosearch", "geosearchstore", "hdel", "hexists", "hexpire", "hexpireat", "hexpiretime", "hget",
    "hgetall", "hgetdel", "hgetex", "hincrby", "hincrbyfloat", "hkeys", "hlen", "hmget", "hmset", "hpersist",
    "hpexpire", "hpexpireat", "hpexpiretime", "hpttl", "hrandfield", "hscan", "hset", "hsetex", "hsetnx",
    "hstrlen", "httl", "hvals", "lindex", "linsert", "llen", "lmove", "lmpop", "lolwut", "lpop", "lpos",
    "lpush", "lpushx", "lrange", "lrem", "lset", "ltrim", "migrate", "module|load", "module|loadex",
    "module|unload", "pfadd", "pfcount", "pfdebug", "pfmerge", "pfselftest", "psync", "readonly", "readwrite",
    "replconf", "replicaof", "restore-asking", "rpop", "rpoplpush", "rpush", "rpushx", "sadd", "scard",
    "script", "script|debug", "script|exists", "script|flush", "script|help", "script|kill", "script|load",
    "script|show", "sdiff", "sdiffstore", "sentinel", "sentinel|ckquorum", "sentinel|config",
    "sentinel|debug", "sentinel|failover", "sentinel|flushconfig", "sentinel|get-master-addr-by-name",
    "sentinel|get-primary-addr-by-name", "sentinel|help", "sentinel|info-cache",
    "sentinel|is-master-down-by-addr", "sentinel|is-primary-down-by-addr", "sentinel|master",
    "sentinel|masters", "sentinel|monitor", "sentinel|myid", "sentinel|pending-scripts", "sentinel|primaries",
    "sentinel|primary", "sentinel|remove", "sentinel|replicas", "sentinel|reset", "sentinel|sentinels",
    "sentinel|set", "sentinel|simulate-failure", "sentinel|slaves", "sflush", "sinter", "sintercard",
    "sinterstore", "sismember", "slaveof", "smembers", "smismember", "smove", "sort", "sort_ro", "spop",
    "srandmember", "srem", "sscan", "sunion", "sunionstore", "sync", "vadd", "vcard", "vdim", "vemb",
    "vgetattr", "vinfo", "vismember", "vlinks", "vrandmember", "vrange", "vrem", "vsetattr", "vsim", "xack",
    "xackdel", "xadd", "xautoclaim", "xclaim", "xdel", "xdelex", "xgroup", "xgroup|create",
    "xgroup|createconsumer", "xgroup|delconsumer", "xgroup|destroy", "xgroup|help", "xgroup|setid", "xinfo",
    "xinfo|consumers", "xinfo|groups", "xinfo|help", "xinfo|stream", "xlen", "xpending", "xrange", "xread",
    "xreadgroup", "xrevrange", "xsetid", "xtrim", "zadd", "zcard", "zcount", "zdiff", "zdiffstore", "zincrby",
    "zinter", "zintercard", "zinterstore", "zlexcount", "zmpop", "zmscore", "zpopmax", "zpopmin",
    "zrandmember", "zrange", "zrangebylex", "zrangebyscore", "zrangestore", "zrank", "zrem", "zremrangebylex",
    "zremrangebyrank", "zremrangebyscore", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank",
    "zscan", "zscore", "zunion", "zunionstore",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_elsewhere_is_in_order_and_not_here() {
        assert!(COMMANDS.is_sorted());
        for name in COMMANDS {
            assert!(table::find(name.as_bytes()).is_none(), "{name} is here");
        }
    }

    #[test]
    fn names_are_looked_up_with_their_subcommands_and_first_arguments() {
        for name in ["hget", "EVAL", "script", "Script|Kill", "lpush|list", "debug|digest"] {
            assert!(is_elsewhere(name.as_bytes()), "{name}");
        }
        for name in [
            "get",
            "nothing",
            "",
            "script|nothing",
            "lpush|",
            "lpush|a|b",
            "lpush|a b",
            "debug|",
            "get|key",
            "h",
        ] {
            assert!(!is_elsewhere(name.as_bytes()), "{name}");
        }
    }
}
