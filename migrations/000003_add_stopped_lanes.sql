-- Purpose: which lanes stand still until a person acts, so that they are counted without a look at the others.
-- Cost: Spanner computes the column for every stored lane in the background, then reads them all once more for an index that only
-- such lanes are in: minutes to hours where there are many.
-- Back out: forward only; a later migration corrects this one.

ALTER TABLE Lanes ADD COLUMN Stopped STRING(8) AS (IF(HeldBy IS NOT NULL, 'HELD', IF(WhyNotDue = 'BLOCKED', 'BLOCKED', NULL))) STORED;

CREATE INDEX LanesStopped ON Lanes (Consumer, Stopped, LaneId) WHERE Stopped IS NOT NULL;
