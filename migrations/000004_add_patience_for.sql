-- Purpose: what PatienceUsed was used for, so that waiting for an object takes nothing from waiting for an instance.
-- Cost: none; a nullable column.
-- Back out: forward only; a later migration corrects this one.

ALTER TABLE Messages ADD COLUMN PatienceFor STRING(16);
