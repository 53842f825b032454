package log

import (
	"fmt"
	"strings"
	"testing"
)

// Scripts that failed once, each for a fault of its own; they stay as they were found.
func TestMetamorphicRegressions(t *testing.T) {
	for _, c := range []struct{ name, set, steps string }{
		{
			"an epoch begins anew below where the checkpoint lacked it before a truncation", "flush after each",
			"a:59865:27831 a:19935:52887 a:17988:36837 m:34098:45736 a:1464:31882 m:1251:44746 a:4484:19549 m:18375:32700 " +
				"a:51075:23040 e:27195:3842 a:24719:30077 a:22344:46251 a:45962:20346 a:49723:34331 t:23942:22650 " +
				"a:64839:37539 a:57262:40331 x:15115:27768",
		},
		{
			"a log rests beside a window without a snapshot", "every batch indexed",
			"a:30157:28259 a:38502:14559 g:14248:28351 a:772:55629 c:29780:69",
		},
		{
			"a deletion is durable, the segment that became the first is not", "one descriptor",
			"a:6224:52677 t:59777:11179 a:1889:31763 m:51369:23815 e:40489:50936 a:371:64850 a:49096:25386 r:36050:52435 " +
				"s:51418:52476 x:56796:6677",
		},
		{
			"a deletion is half durable: the snapshot beyond the gap tells of the producers", "one descriptor",
			"a:38748:30193 a:29397:12153 a:51172:2996 a:51867:63758 a:13386:40574 a:57472:59143 a:28726:8075 a:10874:15349 " +
				"s:34816:52930 m:60361:29862 m:55782:23321 a:7240:58096 a:37866:37086 f:52255:16448 a:54552:47490 f:21083:9983 " +
				"a:26903:16227 a:34589:23469 x:18460:43023 a:43401:50093 s:53643:1368 a:64097:54331 r:59621:10626 x:7615:55680 " +
				"s:27059:22191 x:25554:49764",
		},
		{
			"a deletion is half durable: the snapshot beyond the gap tells of the open transactions", "one batch a segment",
			"a:34592:42967 a:39545:20556 a:40009:9383 a:5160:55283 a:21063:26401 f:60068:37536 s:40527:59883 a:12908:44402 " +
				"X:2505:45948 g:34808:48514",
		},
		{
			"a failed write is cut off, its segment sealed and not synced again", "lz4, recompressed",
			"a:21531:36707 g:11879:15990 w:16513:22951 r:55301:46324 a:36107:37217 a:64211:3064 a:36948:4568 a:63808:56881 " +
				"a:15750:62380 a:32998:9413 a:52724:28592 c:49417:42185 X:30667:5331 a:53847:23310",
		},
		{
			"a deletion is half durable: a segment comes back without its snapshot", "tiny indexes",
			"a:54043:42504 a:4530:3450 a:10445:36714 a:14184:27531 c:36135:40881 a:45726:11659 a:47157:49096 a:23060:22666 " +
				"a:38392:58210 m:51820:17909 f:1624:51836 s:27815:58051 x:37677:65198",
		},
		{
			"a snapshot at the recovery point has lost its window", "tiny indexes",
			"a:23752:31487 a:28077:24063 a:25496:49917 s:1515:61035 a:3786:62706 a:21943:60913 a:38775:53846 a:59131:44995 " +
				"a:6960:21870 a:2819:15038 f:24290:49327 t:17153:4740 a:23106:55108 f:17728:8984 a:65398:27519 m:38624:45685 " +
				"a:19369:43564 t:59494:2799 a:46693:25411 x:51480:53386 d:43688:7664",
		},
		{
			"a lost epoch checkpoint is not rebuilt from what is not whole", "defaults",
			"a:24086:20013 r:54291:22456 a:27902:22290 a:168:421 x:24797:3817 a:21377:38407 a:21256:63832 a:5472:2506 " +
				"a:49868:38247 a:37644:34953 a:19055:12807 m:7294:62085 a:24861:7456 a:18580:49927 a:28108:60293 " +
				"c:28165:48289 a:40728:40492 m:4131:5660 a:39247:12164 a:50079:20131 a:33722:20948 g:49615:33903 " +
				"a:52784:35770 a:16774:26215 a:16374:55357 a:12190:6052 s:12978:8702 a:29018:21303 a:42623:20214 " +
				"a:47102:28984 t:32833:64635 a:47252:6834 a:52028:32389 a:2051:61942 a:46891:19696 t:24589:44694 a:4137:46542 " +
				"g:38708:42393 e:61738:19373 a:523:36609 x:33018:54521",
		},
		{
			"an aborted transaction has lost its first batch and the snapshot that told of it", "defaults",
			"a:35604:30424 r:43208:40947 a:4224:55253 m:40289:17709 g:42619:18792 s:6877:55080 x:23453:48922",
		},
		{
			"the snapshot whose removal was not durable comes back without its window", "append time",
			"a:20931:19069 a:27074:51804 a:20774:36684 a:13747:28043 a:65258:30280 a:32499:30307 g:7060:51505 " +
				"x:18651:14304 m:6941:16627 d:15019:20466",
		},
		{
			"the same within the start that removes the window", "one descriptor",
			"a:38896:20768 a:17112:58162 a:39550:1387 a:29317:37653 a:31471:53756 c:56775:11722 a:20159:43378 " +
				"a:61825:10 a:3849:48704 a:34674:34428 c:10399:61148 X:8359:40191 g:14679:23555 a:33238:36498 t:9760:9632 " +
				"d:13909:15294",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, set := range optionSets() {
				if set.name != c.set {
					continue
				}
				if _, err := runScript(set, parseScript(t, c.steps)); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Fatalf("no option set %q", c.set)
		})
	}
}

// parseScript reads a script as a failure prints it.
func parseScript(t *testing.T, text string) []step {
	t.Helper()
	var out []step
	for _, word := range strings.Fields(text) {
		var s step
		if _, err := fmt.Sscanf(word, "%c:%d:%d", &s.kind, &s.a, &s.b); err != nil {
			t.Fatalf("step %q: %v", word, err)
		}
		out = append(out, s)
	}
	return out
}
