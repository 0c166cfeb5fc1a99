"""What is aimed at, and the table of it in spec/performance.md: before, and as measured last."""
# SPDX-License-Identifier: MIT
import re

# A pattern for rows, of which figure, the least or the most, and the paragraph of
# spec/performance.md, in "What bounds what", that says what a miss is bounded by.
AIMS = (
    (r"codec 256 B", "ratio", None, 2.5, "Codec"),
    (r"codec 8 x 256 B", "ratio", None, 2, "Codec"),
    (r"codec 4096 B", "ratio", None, 1.2, "Codec"),
    (r"instructions codec 256 B", "value", None, 2200, "Codec"),
    (r"tlp (256|4096) B", "ratio", None, 2, "Codec"),
    (r"route (channel|slot) 4096", "ratio", None, 1.5, "Look-ups"),
    (r"route bdf 4096", "ratio", None, 1.3, "Look-ups"),
    (r"route address 4096", "ratio", None, 3, "Look-ups"),
    (r"read 64 B, .*, p50", "ratio", None, 1.25, "Round trip"),
    (r"read 64 B, loopback, p50", "value", None, 4.9, "Round trip"),
    (r"read 64 B, .*, p99", "ratio", None, 1.4, "Round trip"),
    (r"frames a second, .*", "ratio", 1, None, "AF_XDP"),
    (r"processor a frame, .*", "ratio", None, 1, "AF_XDP"),
    (r"write stream 256 B.* beside segments", "ratio", 0.35, None, "Streams"),
    (r"write stream 512 B.* beside segments", "ratio", 0.5, None, "Streams"),
    (r"read stream 4096 B, 256 tags.* beside segments", "ratio", 0.4, None, "Streams"),
    (r"both directions .*", "ratio", 0.7, None, "Both directions"),
    (r"write stream .* sealed", "ratio", 0.85, None, "Seals"),
    (r"equation1 .*", "ratio", 0.98, 1.02, "Tags"),
    (r"pushed, not pulled .*", "ratio", 3, None, "Pushed or pulled"),
    (r"nvme read of 4 KB, requests", "value", None, 0, "A command of NVMe"),
    (r"nvme write of 4 KB, requests", "value", None, 1, "A command of NVMe"),
    (r"nvme read of 4 KB pushed, requests", "value", None, 0, "A command of NVMe"),
    (r"nvme write of 4 KB pushed, requests", "value", None, 1, "A command of NVMe"),
    (r"memory state .*", "ratio", None, 1, "Memory"),
    (r"memory channel by default", "value", None, 128 * 1024, "Memory"),
    (r"memory box of 512 slots", "value", None, 16 << 20, "Memory"),
    (r"start-up, 512 slots", "value", None, 10, "Start-up"),
    (r"growth, box of 512 leased slots, 1 busy", "ratio", None, 1.1, "Growth"),
    (r"idle, 512 slots without a host", "value", None, 0, "Growth"),
    (r"idle, .*, wake-ups a frame", "value", None, 1, "Growth"),
    (r"fio (writes )?depth 1", "ratio", 0.7, None, "A guest"),
    (r"fio depth 1, p50", "ratio", None, 1.6, "A guest"),
    (r"fio depth 32", "ratio", 0.8, None, "A guest"),
    (r"fio writes depth 32", "ratio", 0.9, None, "A guest"),
    (r"fio 128 KB sequential (reads|writes)", "ratio", 0.7, None, "A guest"),
    (r"fio .* beside QEMU's nvme", "ratio", 0.625, None, "Beside others"),
    (r"fio (writes )?depth 1 beside (NBD|iSCSI)", "ratio", 2, None, "Beside others"),
    (r"fio (writes )?depth 32 beside (NBD|iSCSI)", "ratio", 4, None, "Beside others"),
    (r"fio (writes )?depth 1, p99 beside (NBD|iSCSI)", "ratio", None, 0.5, "Beside others"),
    (r"fio (writes )?depth 32, p99 beside (NBD|iSCSI)", "ratio", None, 0.25, "Beside others"),
)


def met(figure, least, most):
    return (least is None or figure >= least) and (most is None or figure <= most)


def limits(of, least, most):
    words = [sign + "%.8g" % limit for limit, sign in ((least, ">= "), (most, "<= "))
             if limit is not None]
    return "%s %s" % (of, " and ".join(words))


def of_rows(result, pattern, of):
    """The figures of all rows that it matches."""
    return [row[of] for row in result["rows"]
            if re.fullmatch(pattern, row["name"]) and row[of] is not None]


def shown(figures):
    """"0.11..0.18 (5 rows)"."""
    ends = sorted({"%.0f" % f if abs(f) >= 1000 else "%.3g" % f
                   for f in (min(figures), max(figures))}, key=float)
    return "..".join(ends) + (" (%d rows)" % len(figures) if len(figures) > 1 else "")


def table(result, before):
    """The lines of a table: an aim each.  `before`: of an earlier measurement, which `result` may
    be as well, and then nothing was measured since."""
    lines = ["| rows | aim | before | now | what bounds it |", "|---|---|---|---|---|"]
    for pattern, of, least, most, where in AIMS:
        first = of_rows(before, pattern, of)
        last = of_rows(result, pattern, of) if result["seconds"] != before["seconds"] else []
        missed = sum(not met(figure, least, most) for figure in last)
        now = "not measured"
        if last:
            now = "%s: %s" % (shown(last), "met" if not missed else "**missed**"
                              if missed == len(last) else "**%d missed**" % missed)
        lines.append("| `%s` | %s | %s | %s | %s |" % (
            pattern.replace("|", "\\|"), limits(of, least, most),
            shown(first) if first else "not measured", now, where))
    return lines
