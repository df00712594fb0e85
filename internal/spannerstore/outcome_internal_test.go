package spannerstore

import "testing"

func TestOnlyBesideTheEmulatorTransactionsWaitForEachOther(t *testing.T) {
	if writesAtOnce("localhost:9010") != 1 || writesAtOnce("") < 2 {
		t.Errorf("%d beside the emulator, %d beside Spanner", writesAtOnce("localhost:9010"), writesAtOnce(""))
	}
}
