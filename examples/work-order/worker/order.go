package worker

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Order is what is billed.
type Order struct {
	WorkOrderID string // the business key: one invoice for each
	Items       int64  // completed ones, 1 or more
}

// The process variables that the worker reads and writes.
const (
	workOrderVariable = "workOrderId"
	itemsVariable     = "completedItems"
	invoiceVariable   = "invoiceNumber"
	refusalVariable   = "refusal"
)

// maxID bounds an order's number, in bytes.
const maxID = 64

// orderOf reads the order from a job's variables. Every error is an ErrRefused: trying again changes nothing.
func orderOf(j *Job) (Order, error) {
	if j.TooLong {
		return Order{}, fmt.Errorf("%w: its variables have more than %d bytes", ErrRefused, maxAnswerBytes)
	}
	values := map[string]json.RawMessage{}
	for _, v := range j.Variables {
		values[v.Name] = v.Value
	}
	var o Order
	if err := json.Unmarshal(values[workOrderVariable], &o.WorkOrderID); err != nil || o.WorkOrderID == "" {
		return o, fmt.Errorf("%w: the variable %s holds no order number", ErrRefused, workOrderVariable)
	}
	if len(o.WorkOrderID) > maxID {
		return o, fmt.Errorf("%w: the order number has more than %d bytes", ErrRefused, maxID)
	}
	items, err := strconv.ParseInt(string(values[itemsVariable]), 10, 64)
	if err != nil || items < 1 {
		return o, fmt.Errorf("%w: the variable %s holds no number of items to bill", ErrRefused, itemsVariable)
	}
	o.Items = items
	return o, nil
}
