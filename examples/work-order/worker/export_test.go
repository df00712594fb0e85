package worker

// Steps has a test do something just before an invoice comes into being, and just after.
func (l *FileLedger) Steps(before, after func()) { l.beforeEffect, l.afterEffect = before, after }
