-- Files that exist get hs_outbox.put_off_at, which 0002 declares: a script adds the columns that tables lack.
SELECT 1;
