-- The largest payload that grns.submit_task takes, in bytes.
select grns.payload_bytes() as bytes
